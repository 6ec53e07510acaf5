//! The supervisor itself: starts this command again for each worker.

use std::pin::pin;

use anyqueue_control::registry::Registry;
use anyqueue_control::supervisor::{Event, RECYCLE_EXIT_CODE, Report, Supervisor, SupervisorOptions};
use anyqueue_worker::process_name;
use serde_json::json;
use tokio::process::Command;

use super::{NonZeroUsize, Plan, Result, SPARE, SuperviseArgs};
use crate::commands::control::Control;
use crate::failure::Failure;
use crate::open::Create;
use crate::output::Output;
use crate::session::{SUPERVISED_VARIABLE, Session};
use crate::signals::hangup;

// The help names this number.
const _: () = assert!(RECYCLE_EXIT_CODE == 6);

impl SuperviseArgs {
    /// Starts the workers, and keeps them running until a signal comes or all of them are done.
    pub(crate) async fn supervise(
        self,
        processes: NonZeroUsize,
        plan: Plan<'_>,
        session: &Session,
    ) -> Result {
        let queue = session.queue(Create::AsUrlSays).await?;
        let control = match plan.control {
            Some(control) => control.open_if_any(&queue).await?,
            None => None,
        };
        let end = self.run(processes, &plan, control.as_ref(), session.output).await;
        let let_go = match control {
            Some(control) => control.close().await,
            None => Ok(()),
        };
        let closed = queue.close().await;
        end.and(let_go).and(closed.map_err(Failure::from))
    }

    async fn run(
        &self,
        processes: NonZeroUsize,
        plan: &Plan<'_>,
        control: Option<&Control>,
        output: Output,
    ) -> Result {
        let base = plan.name.clone().unwrap_or_else(|| process_name().to_string());
        let names = (1..=processes.get()).map(|number| format!("{base}-{number}"));
        let options = SupervisorOptions::default()
            .with_grace(plan.end.saturating_add(SPARE))
            .with_look_every(self.member_options().every);
        let mut supervisor =
            Supervisor::new(names, command()?, options)?.on_event(move |event| tell(event, output))?;
        match control {
            Some(control) => supervisor = supervisor.watching(Registry::new(control.store.clone()))?,
            None => output.note("the workers are not registered: one that hangs is not noticed"),
        }
        let mut work = pin!(supervisor.run());
        let report = tokio::select! {
            end = &mut work => end,
            () = hangup() => { supervisor.shutdown(); work.await }
        };
        tell_report(output, processes, &report?)
    }
}

/// Builds the command line that starts this command again, for one worker.
fn command() -> Result<impl Fn(&str) -> Command + Send + Sync + 'static> {
    let program = std::env::current_exe()?;
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    Ok(move |name: &str| {
        let mut command = Command::new(&program);
        command.args(&arguments).env(SUPERVISED_VARIABLE, name);
        command
    })
}

fn tell(event: &Event, output: Output) {
    match event {
        Event::Failed { .. } | Event::Hung { .. } | Event::Killed { .. } | Event::Blind { .. } => {
            output.warn(&event.to_string());
        }
        _ => output.note(&event.to_string()),
    }
}

fn tell_report(output: Output, processes: NonZeroUsize, report: &Report) -> Result {
    let Report { started, recycled, failed, hung, killed, .. } = *report;
    if output.json {
        return output.object(&json!({
            "processes": processes, "started": started, "recycled": recycled, "failed": failed, "hung": hung,
            "killed": killed,
        }));
    }
    output.note(&format!(
        "started {started}, recycled {recycled}, failed {failed}, hung {hung}, killed {killed}"
    ));
    Ok(())
}
