//! One action on all tasks that match a filter: they are counted, then somebody confirms, then it is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Form, State};
use axum::response::Response;
use tokio::time::{Instant, timeout_at};

use super::confirm::Confirm;
use super::shell::{Shell, back, encoded, failed, no_action, or_failed, page as answer};
use super::text::many;
use crate::app::App;
use crate::bulk::{Action, Bulk};
use crate::filter::Filter;
use crate::noted;
use crate::problem::{Answer, Problem};
use crate::wire::{Path, Query, partition};

/// The most tasks that one form handles.
const MOST: u64 = 10_000;
/// Somebody waits for the page: after this long it shows how far the action came.
const PATIENCE: Duration = Duration::from_secs(20);

/// The actions that are possible on the tasks that match a filter: the action, the text of its link, and
/// whether it takes something away.
pub(crate) fn offered(filter: &Filter) -> Vec<(&'static str, &'static str, bool)> {
    let states = filter.build().map(|filter| filter.states).unwrap_or_default();
    let all = Action::ALL.into_iter().filter(|action| action.concerns_any(&states));
    all.map(|action| match action {
        Action::Cancel => (action.as_str(), "Cancel all that match", true),
        Action::Retry => (action.as_str(), "Retry all that match", false),
        Action::Delete => (action.as_str(), "Delete all that match", true),
    })
    .collect()
}

/// The result: how many tasks had which outcome.
#[derive(Default)]
struct Account {
    outcomes: BTreeMap<String, u64>,
    /// Why it ended early.
    stopped: Option<String>,
}

impl Account {
    fn count(&self) -> u64 {
        self.outcomes.values().sum()
    }

    fn text(&self) -> String {
        let all = self.outcomes.iter().map(|(outcome, count)| match outcome.as_str() {
            "removed" => format!("{count} cancelled"),
            "requested" => format!("{count} told to whoever runs them"),
            "put_back" => format!("{count} put back"),
            "due_now" => format!("{count} due now"),
            "deleted" => format!("{count} deleted"),
            "conflict" => format!("{count} left, as they cannot be treated so"),
            "not_found" => format!("{count} gone meanwhile"),
            _ => format!("{count} left, as they do not match any more"),
        });
        let done = all.collect::<Vec<_>>().join(", ");
        let done = if done.is_empty() { "No task matches any more".to_owned() } else { done };
        self.stopped
            .as_ref()
            .map_or_else(|| format!("{done}."), |why| format!("{done}. Then it ended: {why}."))
    }
}

fn named(name: &str) -> Answer<Action> {
    Action::ALL.into_iter().find(|action| action.as_str() == name).ok_or_else(|| no_action(name))
}

/// Handles the matching tasks until the time is over. After an error, the account says what was done before
/// it.
async fn run(app: &App, filter: &Filter, action: Action, limit: u64, dry_run: bool) -> Answer<Account> {
    let Ok(_permit) = app.bulk.clone().try_acquire_owned() else {
        return Err(Problem::busy("as many bulk actions are under way as this instance allows: try again"));
    };
    let name = partition(&filter.partition)?;
    let mut bulk = Bulk::new(app.queue.clone(), name, filter.build()?, action, limit, dry_run)?;
    let (mut account, end) = (Account::default(), Instant::now() + PATIENCE);
    loop {
        match timeout_at(end, bulk.next()).await {
            Ok(Ok(Some(line))) => *account.outcomes.entry(line.outcome).or_default() += 1,
            Ok(Ok(None)) => return Ok(account),
            Ok(Err(problem)) if account.outcomes.is_empty() => return Err(problem),
            Ok(Err(problem)) => account.stopped = Some(problem.detail),
            Err(_) => {
                account.stopped = Some(format!("{} s have passed; go on with the rest", PATIENCE.as_secs()));
            }
        }
        if account.stopped.is_some() {
            return Ok(account);
        }
    }
}

/// The address of the page that lists the matching tasks.
pub(super) fn place(filter: &Filter) -> String {
    let pairs = filter.pairs().into_iter().map(|(name, value)| format!("{name}={}", encoded(&value)));
    format!("/tasks?{}", pairs.collect::<Vec<_>>().join("&"))
}

/// Shows how many tasks would be affected before anything is done.
pub(crate) async fn confirm(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    filter: Answer<Query<Filter>>,
) -> Response {
    let counted = async {
        app.writable()?;
        let (action, Query(filter)) = (named(&name)?, filter?);
        let account = run(&app, &filter, action, MOST + 1, true).await?;
        Ok::<_, Problem>((action, filter, account))
    };
    match counted.await {
        Ok((action, filter, account)) => answer(&question(&app, action, &filter, &account)),
        Err(problem) => failed(&app, &problem),
    }
}

fn question(app: &App, action: Action, filter: &Filter, account: &Account) -> Confirm {
    let found = account.count();
    let count = found.min(MOST);
    let how_many = if found > MOST {
        format!("More than {MOST} tasks match; the first {MOST} of them")
    } else if account.stopped.is_some() {
        format!("The first {count} tasks that match")
    } else {
        many(count, "task", "tasks")
    };
    let name = &filter.partition;
    let matching: Vec<_> = filter
        .pairs()
        .iter()
        .skip(1)
        .map(|(name, value)| format!("{} “{value}”", name.replace('_', " ")))
        .collect();
    let of = if matching.is_empty() { name.clone() } else { format!("{name} with {}", matching.join(", ")) };
    let (title, verb, what) = match action {
        Action::Cancel => (
            "Cancel tasks?",
            "Cancel them",
            format!(
                "{how_many} of {of} would be cancelled: those that wait are removed, and whoever runs one is told."
            ),
        ),
        Action::Retry => (
            "Retry tasks?",
            "Retry them",
            format!(
                "{how_many} of {of} would run: the dead are put back, and those that wait for their time are due now."
            ),
        ),
        Action::Delete => (
            "Delete tasks?",
            "Delete them",
            format!("{how_many} of {of} would be deleted, for good, unless somebody holds them."),
        ),
    };
    // No more than were counted: nobody confirmed tasks that match later.
    let mut fields = filter.pairs();
    fields.push(("limit", count.to_string()));
    Confirm {
        shell: Shell::new(app, "Tasks", title).still(),
        what,
        action: format!("/do/tasks/{}", action.as_str()),
        fields,
        verb,
        danger: action != Action::Retry,
        none: count == 0,
        back: place(filter),
    }
}

/// Performs the action, and leads back to the tasks.
pub(crate) async fn act(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Form(filter): Form<Filter>,
) -> Response {
    let done = async {
        app.writable()?;
        let limit = filter.limit.filter(|limit| (1..=MOST).contains(limit));
        let limit = limit.ok_or_else(|| Problem::invalid(format!("give a limit of 1 to {MOST}")))?;
        filter.note();
        let account = run(&app, &filter, named(&name)?, limit, false).await?;
        for (outcome, count) in &account.outcomes {
            noted::detail(outcome, count);
        }
        Ok(back(&place(&filter), &account.text()))
    };
    or_failed(&app, done.await)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, Who, scope};

    #[tokio::test]
    async fn only_what_does_something_is_offered() {
        let all = Arc::new(Access::everything(Who::Anybody));
        scope(all, async { offered_by_state() }).await;
    }

    fn offered_by_state() {
        let of = |state: &str| {
            let filter =
                Filter { partition: "p".to_owned(), state: Some(state.to_owned()), ..Filter::default() };
            offered(&filter).into_iter().map(|(action, ..)| action).collect::<Vec<_>>()
        };
        assert_eq!(of(""), ["cancel", "retry", "delete"]);
        assert_eq!(of("running"), ["cancel", "delete"]);
        assert_eq!(of("failed"), ["retry", "delete"]);
        assert_eq!(of("succeeded"), [""; 0]);
    }

    #[test]
    fn an_account_tells_what_was_done_and_why_it_ended() {
        let mut account = Account::default();
        assert_eq!(account.text(), "No task matches any more.");
        account.outcomes = [("removed".to_owned(), 3), ("requested".to_owned(), 1)].into();
        assert_eq!(account.text(), "3 cancelled, 1 told to whoever runs them.");
        account.stopped = Some("the server is gone".to_owned());
        assert!(account.text().ends_with(". Then it ended: the server is gone."));
    }

    #[test]
    fn the_way_back_keeps_the_whole_filter() {
        let filter = Filter {
            partition: "a&b".to_owned(),
            kind: Some("é =".to_owned()),
            min_attempts: Some(2),
            error: Some(String::new()),
            ..Filter::default()
        };
        assert_eq!(place(&filter), "/tasks?partition=a%26b&kind=%C3%A9%20%3D&min_attempts=2");
    }
}
