//! The server: its version, its settings, and the permissions of this user.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime};

use anyqueue::adapter::DurabilityLevel;
use anyqueue::{ErrorKind, Result};

use crate::config::Topology;
use crate::error::ERRORS;
use crate::link::{Call, Link};
use crate::names::{AMENDED_LAYOUT, COUNTED_LAYOUT, LAYOUT, Names};
use crate::{reply, script};

/// The oldest supported server.
const OLDEST: (u32, u32) = (6, 2);

/// A server that can be used.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) version: String,
    /// The server's clock, which Redis reports since 6.2.
    pub(crate) time: Option<SystemTime>,
    pub(crate) durability: DurabilityLevel,
    /// Warnings for an operator.
    pub(crate) warnings: Vec<String>,
}

impl Server {
    /// Asks the server about itself. Returns an error if it cannot be used.
    pub(crate) async fn ask(link: &Link, topology: &Topology) -> Result<Self> {
        let mut servers = Vec::new();
        for info in link.command_to_each(&redis::cmd("INFO")).await? {
            let info = Info::read(&reply::text(info)?);
            info.check(topology)?;
            servers.push(info);
        }
        let fsync = Fsync::ask(link).await;
        // The version is that of the oldest server of a cluster, the warnings are those of all.
        let oldest = servers.iter().min_by_key(|info| numbers(info.get("redis_version")));
        let warnings: BTreeSet<_> = servers.iter().flat_map(|info| info.warnings(&fsync)).collect();
        let durability = servers.iter().map(|info| info.durability(&fsync)).min();
        Ok(Self {
            version: oldest.map(Info::shown_version).unwrap_or_default(),
            time: oldest.and_then(|info| time(info.get("server_time_usec"))),
            // After a fail-over, the next master may lack what this one has acknowledged.
            durability: durability.filter(|_| *topology == Topology::Server).unwrap_or(DurabilityLevel::None),
            warnings: warnings.into_iter().collect(),
        })
    }
}

fn time(since_1970_us: &str) -> Option<SystemTime> {
    Some(SystemTime::UNIX_EPOCH + Duration::from_micros(since_1970_us.parse().ok()?))
}

/// When servers flush their append-only files, if the user may read these settings and they are the same on
/// all masters.
#[derive(Debug, Default)]
struct Fsync {
    appendfsync: Option<String>,
    /// Whether they also flush while they rewrite the file.
    on_rewrite: Option<bool>,
}

impl Fsync {
    async fn ask(link: &Link) -> Self {
        let appendfsync = setting(link, "appendfsync").await;
        let not_on_rewrite = setting(link, "no-appendfsync-on-rewrite").await;
        Self { appendfsync, on_rewrite: not_on_rewrite.map(|not| not == "no") }
    }

    fn is(&self, when: &str) -> bool {
        self.appendfsync.as_deref() == Some(when)
    }
}

async fn setting(link: &Link, name: &str) -> Option<String> {
    let mut values = BTreeSet::new();
    for answer in link.command_to_each(redis::cmd("CONFIG").arg("GET").arg(name)).await.ok()? {
        let [_, value] = reply::exactly::<2>(answer).ok()?;
        values.insert(reply::text(value).ok()?);
    }
    values.pop_first().filter(|_| values.is_empty())
}

/// Refuses keys of another layout, whose messages would seem to be lost.
pub(crate) async fn check_layout(link: &Link, names: &Names) -> Result<()> {
    let former = names.former_messages();
    if reply::int(&link.command(redis::cmd("EXISTS").arg(&former)).await?)? != 0 {
        let text = format!(
            "the key {former} is of a layout from before the first release: use another prefix, or delete the keys with this one"
        );
        return Err(ERRORS.error(ErrorKind::Incompatible, text));
    }
    // The partitions with the oldest and the newest layout.
    for end in [0, -1] {
        let mut list = redis::cmd("ZRANGE");
        list.arg(names.partitions()).arg(end).arg(end).arg("WITHSCORES");
        let Ok([name, layout]) = reply::exactly::<2>(link.command(&list).await?) else { continue };
        let (name, layout) = (reply::text(name)?, reply::text(layout)?);
        if [LAYOUT, AMENDED_LAYOUT, COUNTED_LAYOUT].iter().all(|known| layout != known.to_string()) {
            let text = format!(
                "the partition {name} is of layout {layout}, and this release reads {LAYOUT} to {COUNTED_LAYOUT}: use the release that wrote it, \
                 or another prefix, or delete the keys of this one"
            );
            return Err(ERRORS.error(ErrorKind::Incompatible, text));
        }
    }
    Ok(())
}

/// Tries what the scripts do. Returns an error that names what was refused.
pub(crate) async fn check_permissions(link: &Link, names: &Names) -> Result<()> {
    let mut call = Call::new(&script::RIGHTS, &[&names.trial()], 1, 64);
    call.arg(names.channel().as_bytes());
    let prefix = names.trial().trim_end_matches("trial").to_owned();
    let missing = match link.call(&call).await {
        Err(error) if error.kind() == ErrorKind::AccessDenied => error.message().to_owned(),
        answer => reply::text(answer?)?,
    };
    if missing.is_empty() {
        return Ok(());
    }
    let text = format!(
        "permissions are missing: {missing}; grant them with ACL SETUSER, for the keys ~{prefix}* and the channels &{prefix}*"
    );
    Err(ERRORS.error(ErrorKind::AccessDenied, text))
}

/// The reply of the command INFO.
struct Info(HashMap<String, String>);

impl Info {
    fn read(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Self(lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn check(&self, topology: &Topology) -> Result<()> {
        let version = self.get("redis_version");
        if numbers(version) < OLDEST {
            let (major, minor) = OLDEST;
            let text = format!("the server is Redis {version}: {major}.{minor} or later is needed");
            return Err(ERRORS.error(ErrorKind::Incompatible, text));
        }
        // The second is Valkey's name for it.
        let mode = [self.get("redis_mode"), self.get("server_mode")];
        if mode.contains(&"cluster") && *topology != Topology::Cluster {
            let text = "the server belongs to a Redis Cluster: write redis-cluster:// instead of redis://";
            return Err(ERRORS.error(ErrorKind::Incompatible, text));
        }
        if self.get("role") == "slave" {
            let text = "the server is a read-only replica: connect to the master";
            return Err(ERRORS.error(ErrorKind::Unavailable, text));
        }
        let policy = self.get("maxmemory_policy");
        if policy.starts_with("allkeys") {
            let text = format!(
                "the server may evict messages when its memory is full: set maxmemory-policy to noeviction (it is {policy})"
            );
            return Err(ERRORS.error(ErrorKind::Incompatible, text));
        }
        Ok(())
    }

    fn shown_version(&self) -> String {
        match self.get("valkey_version") {
            "" => self.get("redis_version").to_owned(),
            valkey => format!("valkey {valkey}"),
        }
    }

    fn has_append_only_file(&self) -> bool {
        self.get("aof_enabled") == "1"
    }

    /// Only a file that is flushed before each answer keeps every promise. Otherwise a crash loses the last
    /// writes, which the server may hold back while it waits for the disk.
    fn durability(&self, fsync: &Fsync) -> DurabilityLevel {
        if self.has_append_only_file() && fsync.is("always") && fsync.on_rewrite == Some(true) {
            DurabilityLevel::PowerLoss
        } else {
            DurabilityLevel::None
        }
    }

    fn warnings(&self, fsync: &Fsync) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.has_append_only_file() {
            warnings.push("the server has no append-only file: a crash loses everything since its last snapshot; set appendonly yes".to_owned());
        } else if fsync.is("no") {
            warnings.push(
                "the server leaves flushing to the operating system: a power loss loses up to half a minute; set appendfsync everysec or always"
                    .to_owned(),
            );
        }
        if self.has_append_only_file() && !fsync.is("no") && fsync.on_rewrite == Some(false) {
            warnings.push(
                "the server does not flush its append-only file while it rewrites it: power loss takes up to half a minute then; set \
                 no-appendfsync-on-rewrite no"
                    .to_owned(),
            );
        }
        if self.get("aof_last_write_status") == "err" {
            warnings.push("the server could not write its append-only file: see its log".to_owned());
        }
        if self.get("rdb_last_bgsave_status") == "err" {
            warnings.push("the server could not write its last snapshot: see its log".to_owned());
        }
        let number = |name| self.get(name).parse::<u64>().unwrap_or(0);
        let (used, most) = (number("used_memory"), number("maxmemory"));
        if most > 0 && used >= most / 10 * 9 {
            warnings.push(format!(
                "the server uses {used} bytes of its maxmemory of {most}: pushes fail when it is reached"
            ));
        }
        warnings
    }
}

/// The major and minor number of a version.
fn numbers(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(changes: &[(&str, &str)]) -> Info {
        let mut info = Info::read(
            "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrole:master\r\n\
             maxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n",
        );
        for (name, value) in changes {
            info.0.insert((*name).to_owned(), (*value).to_owned());
        }
        info
    }

    #[test]
    fn what_cannot_serve_is_refused_with_the_reason() {
        assert!(info(&[]).check(&Topology::Server).is_ok());
        assert!(info(&[("redis_mode", "cluster")]).check(&Topology::Cluster).is_ok());
        assert!(info(&[("maxmemory_policy", "volatile-lru")]).check(&Topology::Server).is_ok());
        for (name, value, said) in [
            ("redis_version", "6.0.16", "6.2 or later"),
            ("redis_mode", "cluster", "redis-cluster://"),
            ("server_mode", "cluster", "redis-cluster://"),
            ("role", "slave", "replica"),
            ("maxmemory_policy", "allkeys-lru", "noeviction"),
        ] {
            let error = info(&[(name, value)]).check(&Topology::Server).unwrap_err();
            assert!(error.message().contains(said), "{error}");
        }
    }

    #[test]
    fn what_a_server_survives_is_said_plainly() {
        let fsync = |when: &str, on_rewrite| Fsync { appendfsync: Some(when.to_owned()), on_rewrite };
        let always = fsync("always", Some(true));
        assert_eq!(info(&[]).durability(&always), DurabilityLevel::PowerLoss);
        let rarely = fsync("always", Some(false));
        for weaker in
            [fsync("everysec", Some(true)), fsync("no", Some(true)), Fsync::default(), fsync("always", None)]
        {
            assert_eq!(info(&[]).durability(&weaker), DurabilityLevel::None);
        }
        assert_eq!(
            (info(&[]).durability(&rarely), info(&[]).warnings(&rarely).len()),
            (DurabilityLevel::None, 1)
        );
        let forgetful = info(&[("aof_enabled", "0")]);
        assert_eq!(forgetful.durability(&always), DurabilityLevel::None);
        assert_eq!(forgetful.warnings(&Fsync::default()).len(), 1);
        assert_eq!(info(&[("used_memory", "95"), ("maxmemory", "100")]).warnings(&Fsync::default()).len(), 1);
        assert!(info(&[]).warnings(&fsync("everysec", Some(true))).is_empty());
    }
}
