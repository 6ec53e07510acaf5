//! Where a server lives: its folder, its ports, and the account that it runs under.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Doing, Error, Result};
use crate::port::Port;

/// How many bytes of the end of a log an error contains.
const LOG_TAIL_BYTES: usize = 4096;

/// Where one server lives, from its start to the removal of its data. Restarts do not change it.
#[derive(Debug)]
pub struct Place {
    dir: PathBuf,
    ports: Vec<Port>,
    account: Option<Account>,
}

/// A user account of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Account {
    uid: u32,
    gid: u32,
}

impl Place {
    /// Takes over the folder; the caller must arrange for its removal. The account is needed if the tests run
    /// as root; `missing` makes the error for the case that there is no account of that name.
    pub(crate) fn new(
        dir: PathBuf,
        ports: usize,
        account: Option<&str>,
        missing: impl FnOnce() -> Error,
    ) -> Result<Self> {
        let account = match account {
            Some(name) if rustix::process::getuid().is_root() => Some(find(name).ok_or_else(missing)?),
            _ => None,
        };
        let ports = (0..ports).map(|_| Port::reserve());
        let ports = ports.collect::<std::io::Result<_>>().doing(|| "reserve a port".to_owned())?;
        let place = Self { dir, ports, account };
        place.give(&place.dir)?;
        Ok(place)
    }

    /// Takes over another folder for the same account, without ports; the caller must arrange for its removal.
    pub(crate) fn beside(&self, dir: PathBuf) -> Result<Self> {
        let place = Self { dir, ports: Vec::new(), account: self.account };
        place.give(&place.dir)?;
        Ok(place)
    }

    /// The folder for everything that the server writes. It is removed with the server.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The address that the server must listen on: its first port, on the loopback interface.
    pub fn addr(&self) -> SocketAddr {
        self.port(0)
    }

    /// The address with the port of this index, below [`Program::ports`](crate::Program::ports).
    ///
    /// # Panics
    /// If the program did not ask for that many ports.
    pub fn port(&self, index: usize) -> SocketAddr {
        let port = self.ports.get(index).map(Port::addr);
        port.unwrap_or_else(|| panic!("port {index} of a program that asked for {}", self.ports.len()))
    }

    /// Makes a command that runs in the folder and, if the tests run as root and the program must not, under
    /// its account. Its temporary files are in that folder too: ministack has one named after its process id,
    /// which it would leave behind for others.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(&self.dir).env("TMPDIR", &self.dir);
        if let Some(account) = self.account {
            // The standard library drops root's other groups too.
            command.uid(account.uid).gid(account.gid);
        }
        command
    }

    /// Writes a file that the server can read, and returns its path.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
        self.give(&path)?;
        Ok(path)
    }

    /// Gives a file or folder to the server's account, if it has one of its own.
    fn give(&self, path: &Path) -> Result<()> {
        let Some(account) = self.account else { return Ok(()) };
        chown(path, Some(account.uid), Some(account.gid))
            .doing(|| format!("give {} to the server's account", path.display()))
    }

    /// The file with everything that the server writes to its standard output and error, in all its runs.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let tail = log.get(log.len().saturating_sub(LOG_TAIL_BYTES)..).unwrap_or_default();
        String::from_utf8_lossy(tail).into_owned()
    }
}

fn find(name: &str) -> Option<Account> {
    find_account(&fs::read_to_string("/etc/passwd").ok()?, name)
}

fn find_account(passwd: &str, name: &str) -> Option<Account> {
    let mut fields = passwd.lines().map(|line| line.split(':')).find_map(|mut fields| {
        let found = fields.next() == Some(name);
        found.then_some(fields)
    })?;
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(Account { uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\npostgres2:x:7:8::/:\npostgres:x:105:106:db:/var:/bin/sh\n";
        assert_eq!(find_account(passwd, "postgres"), Some(Account { uid: 105, gid: 106 }));
        assert_eq!(find_account(passwd, "redis"), None);
    }
}
