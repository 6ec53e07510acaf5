//! `anyqueue limits list` and `show`.

use anyqueue_control::limits::{Holder, KeyInfo, LimitInfo, Limits, Rate, Scope};
use clap::Args;
use serde_json::{Value, json};

use super::none::none;
use crate::failure::{Failure, Result, with_causes};
use crate::output::{Output, Table, duration, preview};

/// Lists the limits
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue limits list
  anyqueue limits list --json

Exit code 4: there is none.")]
pub(super) struct List;

/// Shows a limit and who holds its permits
#[derive(Args)]
#[command(after_help = "Example: anyqueue limits show smtp")]
pub(super) struct Show {
    /// The name of the limit
    #[arg(value_name = "LIMIT")]
    name: String,
}

impl List {
    pub(super) async fn run(self, limits: &Limits, output: Output) -> Result {
        let all = limits.list().await?;
        for (name, error) in &all.unreadable {
            output.warn(&format!("{name}: {}", with_causes(error)));
        }
        if all.limits.is_empty() {
            output.note("there is no limit");
            return Err(Failure::Nothing);
        }
        let mut table = Table::new(&["limit", "of", "cap", "held", "wanted", "rate", "burst"]);
        for limit in &all.limits {
            if output.json {
                output.object(&line(limit))?;
            } else {
                table.row(row(limit));
            }
        }
        if output.json { Ok(()) } else { table.print(output) }
    }
}

impl Show {
    pub(super) async fn run(self, limits: &Limits, output: Output) -> Result {
        let Some(limit) = limits.get(&self.name).await? else { return Err(none(&self.name, output)) };
        if output.json {
            return output.object(&line(&limit));
        }
        output.note(&summary(&limit));
        let mut table = Table::new(&["holder", "held", "wanted", "valid for"]);
        for holder in &limit.holders {
            table.row(holder_row(holder));
        }
        table.print(output)?;
        if limit.keys.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(&["value", "held", "wanted"]);
        for key in &limit.keys {
            table.row(key_row(key));
        }
        table.print(output)
    }
}

fn line(limit: &LimitInfo) -> Value {
    let mut line = json!(limit);
    let holders = limit.holders.iter().map(|holder| {
        let mut line = json!(holder);
        if let Some(object) = line.as_object_mut() {
            object.insert("valid_s".to_owned(), json!(holder.valid_for.as_secs_f64()));
        }
        line
    });
    let holders = holders.collect();
    if let Some(object) = line.as_object_mut() {
        object.insert("holders".to_owned(), Value::Array(holders));
    }
    line
}

fn summary(limit: &LimitInfo) -> String {
    let name = &limit.name;
    let cap = match limit.cap {
        Some(cap) if matches!(limit.of, Scope::Header(_)) => {
            format!(", {cap} at once each, {} held", limit.held)
        }
        Some(cap) if limit.held > cap => {
            format!(", {} of {cap} held: nothing starts until enough have ended", limit.held)
        }
        Some(cap) => format!(", {} of {cap} held", limit.held),
        None => String::new(),
    };
    let rate = match (limit.rate, limit.available) {
        (Some(rate), Some(available)) => {
            format!(", {} with a burst of {}, {available} may start now", per(rate), rate.burst)
        }
        (Some(rate), None) => format!(", {} with a burst of {} each", per(rate), rate.burst),
        _ => String::new(),
    };
    format!("{name} limits {}{cap}{rate}", limit.of)
}

fn row(limit: &LimitInfo) -> [String; 7] {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let wanted: u64 = limit.holders.iter().fold(0, |sum, holder| sum.saturating_add(holder.wanted));
    let of_cap = |count: u64| or_dash(limit.cap.map(|_| count.to_string()));
    [
        preview(limit.name.as_bytes(), 60),
        preview(limit.of.to_string().as_bytes(), 60),
        or_dash(limit.cap.map(|cap| cap.to_string())),
        of_cap(limit.held),
        of_cap(wanted),
        or_dash(limit.rate.map(per)),
        or_dash(limit.rate.map(|rate| rate.burst.to_string())),
    ]
}

fn holder_row(holder: &Holder) -> [String; 4] {
    let (held, wanted) = (holder.held.to_string(), holder.wanted.to_string());
    [preview(holder.who.as_bytes(), 60), held, wanted, duration(holder.valid_for)]
}

fn key_row(key: &KeyInfo) -> [String; 3] {
    [preview(key.value.as_bytes(), 60), key.held.to_string(), key.wanted.to_string()]
}

/// A rate in the form in which people write it.
fn per(rate: Rate) -> String {
    let (count, unit) = match rate.per_second {
        rate if rate >= 1.0 => (rate, "s"),
        rate if rate * 60.0 >= 1.0 => (rate * 60.0, "m"),
        rate if rate * 3600.0 >= 1.0 => (rate * 3600.0, "h"),
        rate => (rate * 86_400.0, "d"),
    };
    // Drops the rounding error of the division.
    format!("{}/{unit}", (count * 1000.0).round() / 1000.0)
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use anyqueue::Queue;
    use anyqueue_control::limits::Limit;
    use anyqueue_memory::MemoryQueue;

    use super::*;

    #[tokio::test]
    async fn what_is_held_beyond_a_lowered_cap_is_said_to_hold_up_the_next_tasks() {
        let limits = Limits::new(Queue::new(MemoryQueue::new()).unwrap().control().unwrap());
        limits.put("smtp", &Limit::partition("mail").unwrap().cap(5)).await.unwrap();
        let mut limit = limits.get("smtp").await.unwrap().unwrap();
        for (held, said) in [
            (0, "smtp limits mail, 0 of 5 held"),
            (5, "smtp limits mail, 5 of 5 held"),
            (7, "smtp limits mail, 7 of 5 held: nothing starts until enough have ended"),
        ] {
            limit.held = held;
            assert_eq!(summary(&limit), said);
        }
        // Each value has a cap of its own: what all hold together exceeds none.
        limit.of = Scope::Header("customer".to_owned());
        assert_eq!(summary(&limit), "smtp limits each customer, 5 at once each, 7 held");
    }
}
