//! Where packages of other languages are installed.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the folder of a project's npm packages; all checkouts share it.
pub(super) fn node_modules(project: &str) -> Option<PathBuf> {
    let name = Path::new(project).file_name()?;
    Some(data()?.join(name))
}

/// Returns the virtual environment of Python packages.
pub(super) fn environment(packages: &[&str]) -> Option<PathBuf> {
    let name = packages.first()?.replace("==", "-");
    Some(data()?.join(name))
}

/// Returns the project's folder among the user's data; all checkouts of the project share it.
fn data() -> Option<PathBuf> {
    let data = env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".local/share")))?;
    Some(data.join("anyqueue"))
}
