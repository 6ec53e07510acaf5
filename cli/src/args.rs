//! The arguments that all commands share, and the list of commands.

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::commands::{
    amend, audit, bench, cron, dead, doctor, ledger, limits, pages, pause, peek, pull, purge, push, stats,
    tasks, tokens, transfer, work, workers,
};
use crate::failure::{Result, or_read_enough};
use crate::output::Output;
use crate::session::{LEDGER_VARIABLE, Session, URL_VARIABLE, url_argument};

const AFTER_HELP: &str = "\
Examples:
  export ANYQUEUE_URL=sqlite:jobs.db
  anyqueue push mail 'hello'
  anyqueue work mail --exec ./send-mail
  anyqueue stats

URLs:
  sqlite:jobs.db                        a file; sqlite:///srv/jobs.db with an absolute path
  postgres://user:password@host/db      redis://host:6379/    rediss:// with TLS
  redis-cluster://a:1/?nodes=b:2        redis-sentinel://a:26379/?master=main
  amqp://user:password@host/vhost       amqps:// with TLS
  sqs://eu-west-1/prefix                memory: (to try things out; gone when the command ends)
  env:NAME                              the environment variable NAME holds the URL. This keeps a password out of the
                                        arguments, which other users of the machine can read
  Options are query parameters, such as sqlite:jobs.db?synchronous=normal. A wrong option is refused with a list of
  the right ones.

Output:
  Results go to standard output, everything else to standard error. With --json, results are one object per line, and
  long commands write their progress to standard error every two seconds, such as
  {\"progress\":\"moved\",\"done\":1000,\"total\":5000}. --quiet turns notes and progress off.

Exit codes:
  0  done
  1  failed
  2  wrong arguments; nothing was done
  3  doctor or conformance found something wrong, or the task that was waited for did not succeed
  4  nothing was found
  5  the task that was waited for has not ended in time
  6  the worker ended normally and should be started again: it was recycled, or reached --max-tasks or --max-memory";

/// Work queues on any backend: push, process, inspect, repair, move
#[derive(Parser)]
#[command(
    name = "anyqueue",
    version,
    propagate_version = true,
    after_help = AFTER_HELP,
    max_term_width = 110,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Args)]
struct Common {
    /// Where the queues are: see URLs in `anyqueue --help`
    #[arg(
        long, global = true, env = URL_VARIABLE, hide_env_values = true, value_name = "URL",
        value_parser = url_argument
    )]
    url: Option<String>,
    /// Where the ends of tasks are kept, if not with the queues: a memory, SQLite, PostgreSQL or Redis URL
    #[arg(
        long, global = true, env = LEDGER_VARIABLE, hide_env_values = true, value_name = "URL",
        value_parser = url_argument
    )]
    ledger_url: Option<String>,
    /// Writes JSON, one object per line
    #[arg(long, global = true)]
    json: bool,
    /// Writes no notes and no progress
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Subcommand)]
enum Command {
    Push(push::Push),
    Pull(pull::Pull),
    Peek(peek::Peek),
    Work(work::Work),
    Workers(workers::Workers),
    #[cfg(feature = "serve")]
    Serve(crate::commands::serve::Serve),
    Cron(cron::Cron),
    Limits(limits::Limits),
    Tokens(tokens::Tokens),
    Audit(audit::Audit),
    Stats(stats::Stats),
    #[command(subcommand)]
    Dead(dead::Dead),
    #[command(subcommand)]
    Tasks(tasks::Tasks),
    #[command(subcommand)]
    Ledger(ledger::Ledger),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Amend(amend::Amend),
    Disable(amend::Disable),
    Enable(amend::Enable),
    Purge(purge::Purge),
    #[command(name = "move")]
    Move(transfer::Move),
    #[cfg(feature = "conformance")]
    Capabilities(crate::commands::capabilities::Capabilities),
    Doctor(doctor::Doctor),
    #[cfg(feature = "conformance")]
    Conformance(crate::commands::conformance::Conformance),
    Bench(bench::Bench),
    Completions(pages::Completions),
    Man(pages::Man),
}

impl Cli {
    /// Runs the command.
    pub(crate) async fn run(self) -> Result {
        let output = Output { json: self.common.json, quiet: self.common.quiet };
        let session = Session::new(self.common.url, self.common.ledger_url, output);
        match self.command {
            Command::Push(command) => command.run(&session).await,
            Command::Pull(command) => command.run(&session).await,
            Command::Peek(command) => or_read_enough(command.run(&session).await),
            Command::Work(command) => Box::pin(command.run(&session)).await,
            Command::Workers(command) => command.run(&session).await,
            #[cfg(feature = "serve")]
            Command::Serve(command) => command.run(&session).await,
            Command::Cron(command) => command.run(&session).await,
            Command::Limits(command) => command.run(&session).await,
            Command::Tokens(command) => command.run(&session).await,
            Command::Audit(command) => or_read_enough(command.run(&session).await),
            Command::Stats(command) => or_read_enough(command.run(&session).await),
            Command::Dead(command) => command.run(&session).await,
            Command::Tasks(command) => command.run(&session).await,
            Command::Ledger(command) => command.run(&session).await,
            Command::Pause(command) => command.run(&session).await,
            Command::Resume(command) => command.run(&session).await,
            Command::Amend(command) => command.run(&session).await,
            Command::Disable(command) => command.run(&session).await,
            Command::Enable(command) => command.run(&session).await,
            Command::Purge(command) => command.run(&session).await,
            Command::Move(command) => command.run(&session).await,
            #[cfg(feature = "conformance")]
            Command::Capabilities(command) => or_read_enough(command.run(&session).await),
            Command::Doctor(command) => command.run(&session).await,
            #[cfg(feature = "conformance")]
            Command::Conformance(command) => command.run(&session).await,
            Command::Bench(command) => command.run(&session).await,
            Command::Completions(command) => or_read_enough(command.run(&session, Self::command())),
            Command::Man(command) => or_read_enough(command.run(&session, Self::command())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
