//! Limits: how many tasks run at once, how fast they start, and who holds how many permits.

use std::sync::Arc;
use std::time::SystemTime;

use anyqueue_control::limits::{Holder, LimitInfo, LimitList, Limits, Scope};
use askama::Template;
use axum::extract::{Form, State};
use axum::response::Response;

use super::confirm::Confirm;
use super::cron::Which;
use super::partition::Said;
use super::shell::{Shell, back, failed, no_action, or_failed, page as answer};
use super::text::{moment, short};
use crate::access;
use crate::app::App;
use crate::checked;
use crate::etag::{deletion, not_as_expected};
use crate::manage::sees_limit;
use crate::noted;
use crate::problem::Problem;
use crate::wire::{Path, Query};

/// The most limits that are shown, and the most holders of each.
const SHOWN: usize = 200;

#[derive(Template)]
#[template(path = "limits.html")]
struct LimitsPage {
    shell: Shell,
    found: Result<Found, String>,
}

struct Found {
    limits: Vec<Shown>,
    unreadable: Vec<(String, String)>,
    all: usize,
}

struct Shown {
    name: String,
    /// Empty if it is for something other than a queue.
    partition: String,
    /// What it is for, if not for a queue.
    other: String,
    cap: Option<String>,
    rate: Option<String>,
    holders: Vec<Holding>,
    more: usize,
}

struct Holding {
    who: String,
    held: u64,
    wanted: u64,
    until: String,
    left: String,
}

pub(crate) async fn page(State(app): State<Arc<App>>, Query(said): Query<Said>) -> Response {
    let found = async { Ok::<_, Problem>(Found::of(&Limits::new(app.store()?.clone()).list().await?)) };
    let found = found.await.map_err(|problem| problem.detail);
    answer(&LimitsPage { shell: Shell::new(&app, "Limits", "Limits").timed().saying(said.said), found })
}

/// Asks for confirmation before a limit is deleted, even one that cannot be read.
pub(crate) async fn confirm(State(app): State<Arc<App>>, Query(which): Query<Which>) -> Response {
    if let Err(problem) = app.writable() {
        return failed(&app, &problem);
    }
    let name = which.name;
    // A limit that cannot be read is deleted as it is.
    let found = async { Ok::<_, Problem>(Limits::new(app.store()?.clone()).get(&name).await?) };
    let revision = found.await.ok().flatten().filter(sees_limit).map(|info| info.tag).unwrap_or_default();
    answer(&Confirm {
        shell: Shell::new(&app, "Limits", "Delete a limit?").still(),
        what: format!("The limit “{name}” would be deleted: within seconds nobody is held back by it."),
        action: "/do/limits/delete".to_owned(),
        fields: vec![("name", name), ("revision", revision)],
        verb: "Delete it",
        danger: true,
        none: false,
        back: "/limits".to_owned(),
    })
}

pub(crate) async fn act(
    State(app): State<Arc<App>>,
    Path(action): Path<String>,
    Form(which): Form<Which>,
) -> Response {
    let done = async {
        app.writable()?;
        if action != "delete" {
            return Err(no_action(&action));
        }
        let (name, store) = (&which.name, Limits::new(app.store()?.clone()));
        noted::detail("limit", name);
        let limits = &store;
        let delete = |expected| async move { Ok(checked::deleted(limits.delete_if(name, &expected).await?)) };
        let deleted = checked::limit(limits, name, &which.expected(), delete).await?;
        let gone = Problem::not_found(format!("there is no limit {name:?} any more"));
        deletion(deleted, not_as_expected("limit", name), gone)?;
        Ok(back("/limits", &format!("{name} is deleted.")))
    };
    or_failed(&app, done.await)
}

impl Found {
    fn of(all: &LimitList) -> Self {
        let seen = || all.limits.iter().filter(|info| sees_limit(info));
        let unreadable = all.unreadable.iter().filter(|_| access::covers_all());
        let unreadable = unreadable.map(|(name, error)| (name.clone(), error.to_string()));
        Self {
            limits: seen().take(SHOWN).map(Shown::of).collect(),
            unreadable: unreadable.take(SHOWN).collect(),
            all: seen().count(),
        }
    }
}

impl Shown {
    fn of(info: &LimitInfo) -> Self {
        let (partition, other) = match &info.of {
            Scope::Partition(name) => (name.clone(), String::new()),
            Scope::Kind(kind) => (String::new(), format!("the kind {kind}")),
            Scope::Header(name) => (String::new(), format!("each value of the header {name}")),
            _ => (String::new(), "something that this release does not know".to_owned()),
        };
        let is_each = matches!(info.of, Scope::Header(_));
        let cap = info.cap.map(|cap| {
            if is_each {
                return format!("{cap} each, {} held", info.held);
            }
            let over = if info.held > cap { ": it was lowered, and what runs may end" } else { "" };
            format!("{} of {cap} held{over}", info.held)
        });
        let now = info.available.map_or_else(String::new, |now| format!("; {now} may start now"));
        let rate = info.rate.map(|rate| format!("{} a second, {} at once{now}", rate.per_second, rate.burst));
        let more = info.holders.len().saturating_sub(SHOWN);
        Self {
            name: info.name.clone(),
            partition,
            other,
            cap,
            rate,
            holders: info.holders.iter().take(SHOWN).map(Holding::of).collect(),
            more,
        }
    }
}

impl Holding {
    fn of(holder: &Holder) -> Self {
        Self {
            who: holder.who.clone(),
            held: holder.held,
            wanted: holder.wanted,
            until: moment(SystemTime::now() + holder.valid_for),
            left: short(holder.valid_for),
        }
    }
}
