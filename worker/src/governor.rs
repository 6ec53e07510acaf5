//! How much room this machine has for tasks.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::room::Room;

/// The share of a limit at which the room begins to shrink. At the limit there is no room.
const SHRINKS_FROM: f64 = 0.9;

/// Decides how many of its slots a worker may use.
///
/// It is asked about once a second. When it sees less room, the worker uses fewer slots at once: running
/// tasks continue, and messages held beyond the slots are released. While there is no room, the worker pulls
/// nothing. When the governor has seen more room for five seconds, the worker takes back an eighth of its
/// slots each second, so that the slots follow the machine without flapping.
///
/// It must not block. A panic counts as no room.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use anyqueue_worker::{Governor, Room};
///
/// #[derive(Debug, Default)]
/// struct Maintenance(AtomicBool);
///
/// impl Governor for Maintenance {
///     fn check(&self) -> Room {
///         if self.0.load(Ordering::Relaxed) { Room::none("maintenance") } else { Room::all() }
///     }
/// }
/// assert_eq!(Maintenance::default().check(), Room::all());
/// ```
pub trait Governor: fmt::Debug + Send + Sync + 'static {
    /// Returns how much room the machine has for the worker's tasks, including those that run now. It is not
    /// told what a task needs, because it is asked before any message is pulled: what a kind needs is set
    /// beforehand, in slots ([`Kind::slots`](crate::Kind::slots)), and the answer limits the slots.
    fn check(&self) -> Room;
}

/// A governor that limits the load and the memory of the machine, and the memory of the process's control
/// group, as Linux reports them. A value that cannot be read sets no limit. Over the last tenth before a
/// limit, the room shrinks evenly from all slots to none.
///
/// ```
/// use anyqueue_worker::{Governor, ResourceGovernor};
/// let governor = ResourceGovernor::new().max_load_per_cpu(1e9).max_memory(0.95);
/// println!("room for {:.0} % of the slots", governor.check().share() * 100.0);
/// ```
#[derive(Clone, Debug)]
#[must_use = "give it to WorkerBuilder::governor"]
pub struct ResourceGovernor {
    max_load_per_cpu: f64,
    max_memory: f64,
    /// `/` except in tests.
    root: PathBuf,
}

impl Default for ResourceGovernor {
    fn default() -> Self {
        Self::new()
    }
}

impl ResourceGovernor {
    /// Allows a load of 4 per processor and 90 % of the memory.
    pub fn new() -> Self {
        Self { max_load_per_cpu: 4.0, max_memory: 0.9, root: PathBuf::from("/") }
    }

    /// Sets the one-minute load average per processor at which no more tasks are taken on.
    pub fn max_load_per_cpu(mut self, load: f64) -> Self {
        self.max_load_per_cpu = load;
        self
    }

    /// Sets the share of the memory of the machine or the control group at which no more tasks are taken on,
    /// from 0 to 1.
    pub fn max_memory(mut self, share: f64) -> Self {
        self.max_memory = share;
        self
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }

    #[allow(clippy::cast_precision_loss, reason = "numbers of processors")]
    fn load_per_cpu(&self) -> Option<f64> {
        let load: f64 = self.read("proc/loadavg")?.split_whitespace().next()?.parse().ok()?;
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Some(load / cpus as f64)
    }

    fn machine_memory(&self) -> Option<f64> {
        let text = self.read("proc/meminfo")?;
        let field = |name: &str| -> Option<f64> {
            text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
        };
        Some(1.0 - field("MemAvailable:")? / field("MemTotal:")?)
    }

    /// The memory share of the fullest among the process's control group and its parents.
    fn group_memory(&self) -> Option<f64> {
        let groups = self.read("proc/self/cgroup")?;
        let own =
            |prefix: &str| groups.lines().find_map(|line| line.split_once(prefix).map(|(_, path)| path));
        let (mount, path, limit, used) = if let Some(path) = own("0::/") {
            ("sys/fs/cgroup", path, "memory.max", "memory.current")
        } else {
            ("sys/fs/cgroup/memory", own(":memory:/")?, "memory.limit_in_bytes", "memory.usage_in_bytes")
        };
        let share = |group: &Path| -> Option<f64> {
            let number = |file: &str| -> Option<f64> {
                let path = Path::new(mount).join(group).join(file);
                self.read(path.to_str()?)?.trim().parse().ok()
            };
            Some(number(used)? / number(limit)?)
        };
        Path::new(path).ancestors().filter_map(share).reduce(f64::max)
    }
}

impl Governor for ResourceGovernor {
    fn check(&self) -> Room {
        let load = self.load_per_cpu().map_or(Room::all(), |load| {
            let most = self.max_load_per_cpu;
            Room::of(left(load, most), format!("the load is {load:.1} per processor, of {most:.1} at most"))
        });
        let memory = [("control group", self.group_memory()), ("machine", self.machine_memory())];
        memory.into_iter().fold(load, |room, (whose, used)| {
            let Some(used) = used else { return room };
            let (percent, most) = (used * 100.0, self.max_memory * 100.0);
            let reason = format!("{percent:.0} % of the {whose}'s memory is in use, of {most:.0} % at most");
            room.min(Room::of(left(used, self.max_memory), reason))
        })
    }
}

/// The room that is left below a limit.
fn left(used: f64, limit: f64) -> f64 {
    let shrinks_from = limit * SHRINKS_FROM;
    if used <= shrinks_from { 1.0 } else { (limit - used) / (limit - shrinks_from) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root folder with these files.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, ResourceGovernor) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let governor = ResourceGovernor { root: folder.path().to_owned(), ..ResourceGovernor::new() };
        (folder, governor)
    }

    #[test]
    fn what_cannot_be_read_limits_nothing() {
        let (_folder, governor) = machine(&[]);
        assert_eq!(governor.check(), Room::all());
    }

    /// The machine has no room, for a reason with this text.
    fn assert_full(governor: &ResourceGovernor, text: &str) {
        let room = governor.check();
        assert!(room.share() <= 0.0 && room.reason().unwrap().contains(text), "{room:?}");
    }

    #[test]
    fn a_high_load_stops() {
        let (_folder, governor) = machine(&[("proc/loadavg", "99999.0 1.0 1.0 1/100 1")]);
        assert_full(&governor, "load");
        assert_eq!(governor.max_load_per_cpu(1e9).check(), Room::all());
    }

    #[test]
    fn the_room_shrinks_over_the_last_tenth_before_a_limit() {
        for (available, share) in [(300, 1.0), (281, 1.0), (240, 0.5), (208, 0.1), (200, 0.0), (1, 0.0)] {
            let text = format!("MemTotal: 1000 kB\nMemAvailable: {available} kB\n");
            let (_folder, governor) = machine(&[("proc/meminfo", &text)]);
            let room = governor.max_memory(0.8).check();
            assert!((room.share() - share).abs() < 1e-6, "{room:?} with {available} kB");
            assert_eq!(room.reason().is_some(), share < 1.0);
        }
    }

    #[test]
    fn a_full_machine_stops() {
        let text = "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 50 kB\n";
        let (_folder, governor) = machine(&[("proc/meminfo", text)]);
        assert_full(&governor, "95 % of the machine");
        assert!(governor.max_memory(0.96).check().share() > 0.0);
    }

    #[test]
    fn a_full_control_group_stops_though_the_machine_has_room() {
        let machine_has_room = ("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 900 kB\n");
        let version_2 = [
            machine_has_room,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "95\n"),
            ("sys/fs/cgroup/a/memory.max", "100\n"),
            ("sys/fs/cgroup/a/memory.current", "95\n"),
        ];
        let version_1 = [
            machine_has_room,
            ("proc/self/cgroup", "5:cpu:/x\n4:memory:/x\n"),
            ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "100\n"),
            ("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "95\n"),
        ];
        for files in [&version_2[..], &version_1[..]] {
            let (_folder, governor) = machine(files);
            assert_full(&governor, "control group");
            assert!(governor.max_memory(0.96).check().share() > 0.0, "{files:?}");
        }
    }
}
