//! `anyqueue completions` and `anyqueue man`.

use std::io;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::{Failure, Result};
use crate::session::Session;

/// Writes shell completions
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue completions bash > ~/.local/share/bash-completion/completions/anyqueue
  anyqueue completions zsh > \"${fpath[1]}/_anyqueue\"
  anyqueue completions fish > ~/.config/fish/completions/anyqueue.fish")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Writes the completions of the command with all its subcommands.
    pub(crate) fn run(self, session: &Session, mut whole: Command) -> Result {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut whole, "anyqueue", &mut text);
        session.output.bytes(text.trim_ascii_end())
    }
}

/// Writes the manual page
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue man | man -l -
  anyqueue man --dir ~/.local/share/man/man1      a page for each command")]
pub(crate) struct Man {
    /// Writes the pages of all commands to this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Man {
    /// Writes the manual pages of the command with all its subcommands.
    pub(crate) fn run(self, session: &Session, whole: Command) -> Result {
        let Some(dir) = self.dir else {
            let mut text = Vec::new();
            clap_mangen::Man::new(whole).render(&mut text)?;
            return session.output.bytes(text.trim_ascii_end());
        };
        let failed = |error: io::Error| Failure::Failed(format!("{}: {error}", dir.display()));
        std::fs::create_dir_all(&dir).map_err(failed)?;
        clap_mangen::generate_to(whole, &dir).map_err(failed)
    }
}
