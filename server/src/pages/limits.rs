//! Limits: how many at once, how fast, and who holds how much of that.

use std::sync::Arc;
use std::time::SystemTime;

use anyqueue_control::limits::{Holder, LimitInfo, LimitList, Limits, Scope};
use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::shell::{Shell, page as answer};
use super::text::{moment, short};
use crate::app::App;
use crate::problem::Problem;

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
    /// Nothing if it is for something else than a queue.
    partition: String,
    /// What it is for, if that is no queue.
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

pub(crate) async fn page(State(app): State<Arc<App>>) -> Response {
    let found = async { Ok::<_, Problem>(Found::of(&Limits::new(app.store()?.clone()).list().await?)) };
    let found = found.await.map_err(|problem| problem.detail);
    answer(&LimitsPage { shell: Shell::new(&app, "Limits", "Limits").timed(), found })
}

impl Found {
    fn of(all: &LimitList) -> Self {
        let unreadable = all.unreadable.iter().map(|(name, error)| (name.clone(), error.to_string()));
        Self {
            limits: all.limits.iter().take(SHOWN).map(Shown::of).collect(),
            unreadable: unreadable.take(SHOWN).collect(),
            all: all.limits.len(),
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
