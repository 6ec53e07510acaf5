//! The command line.

use std::path::PathBuf;

/// Writes the SHA-256 sums of all files in a directory, as sha256sum prints them.
#[derive(clap::Parser)]
pub(crate) struct Args {
    /// The directory
    pub(crate) dir: PathBuf,
    /// Where the sums go once all files are processed
    #[arg(long, value_name = "FILE", default_value = "SHA256SUMS")]
    pub(crate) out: PathBuf,
    /// The queue, an SQLite file
    #[arg(long, value_name = "FILE", default_value = "SHA256SUMS.queue")]
    pub(crate) queue: PathBuf,
    /// Try again what earlier runs could not read
    #[arg(long)]
    pub(crate) redrive: bool,
}
