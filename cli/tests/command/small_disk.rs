//! A file system of a test's own, small enough to be filled.

use std::path::PathBuf;
use std::process::Command;

/// Unmounted when the test ends, however it does.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts 12 MiB at a new folder. Where this process may not, says that the test did not run.
    pub(crate) fn mount(folder: PathBuf, test: &str) -> Option<Self> {
        std::fs::create_dir(&folder).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=12m", "anyqueue-test"]).arg(&folder);
        if mount.output().is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        eprintln!("NOT RUN: {test} (mounting a tmpfs needs root)");
        None
    }

    /// Leaves less than SQLite keeps free for taking messages out: a quarter of a small disk.
    pub(crate) fn fill(&self) {
        std::fs::write(self.0.join("others"), vec![0; 9 << 20]).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}
