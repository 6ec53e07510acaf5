//! `anyqueue limits put`.

use anyqueue::PartitionId;
use anyqueue_control::limits::{Limit, Limits};
use clap::Args;
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::session::queue_name;

/// Sets a limit, or changes it
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue limits put smtp --queue mail --cap 5
  anyqueue limits put api --queue calls --rate 600/m --burst 20
  anyqueue limits put render --kind render --cap 2
  anyqueue limits put fair --each customer --cap 3

With --kind and --each, a message that may not start is deferred for up to 30 s, and those behind it continue. A limit is
replaced as a whole: one that had a cap, and is set again with only a rate, has no cap any more. Workers keep the permits
that they hold.")]
pub(super) struct Put {
    /// The name of the limit
    #[arg(value_name = "LIMIT")]
    name: String,
    #[command(flatten)]
    of: Of,
    /// How many messages are processed at once
    #[arg(long, value_name = "N")]
    cap: Option<u64>,
    /// How fast messages are started, such as 10/s, 600/m, 5/h or 1/d
    #[arg(long, value_name = "N/TIME", value_parser = per_second)]
    rate: Option<f64>,
    /// How many may start at once after a pause [default: 1]
    #[arg(long, value_name = "N", requires = "rate")]
    burst: Option<u64>,
}

/// What it is for.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Of {
    /// The queue it is for
    #[arg(long, value_name = "QUEUE", value_parser = queue_name)]
    queue: Option<PartitionId>,
    /// The kind of messages it is for, in any queue
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// The header it is for: each of its values has as many for itself
    #[arg(long, value_name = "HEADER")]
    each: Option<String>,
}

impl Of {
    fn limit(&self) -> Result<Limit> {
        match (&self.queue, &self.kind, &self.each) {
            (Some(queue), ..) => Ok(Limit::partition(queue)?),
            (_, Some(kind), _) => Ok(Limit::kind(kind)?),
            (.., Some(header)) => Ok(Limit::each(header)?),
            _ => Err(Failure::Usage("nothing is limited: give --queue, --kind or --each".to_owned())),
        }
    }
}

impl Put {
    pub(super) async fn run(self, limits: &Limits, output: Output) -> Result {
        if self.cap.is_none() && self.rate.is_none() {
            return Err(Failure::Usage("nothing is limited: give --cap, --rate, or both".to_owned()));
        }
        let mut limit = self.of.limit()?;
        if let Some(cap) = self.cap {
            limit = limit.cap(cap);
        }
        if let Some(rate) = self.rate {
            limit = limit.rate(rate, self.burst.unwrap_or(1));
        }
        limits.put(&self.name, &limit).await?;
        let name = &self.name;
        let text = format!("put {name}: workers obey it within seconds");
        output.result(&text, &json!({ "limit": name, "cap": limit.most(), "rate": limit.starts() }))
    }
}

/// Parses a rate, such as `10/s`.
fn per_second(text: &str) -> Result<f64, String> {
    let how = "write it as 10/s, 600/m, 5/h or 1/d";
    let (count, unit) = text.split_once('/').ok_or(how)?;
    let count: f64 = count.trim().parse().map_err(|_| how)?;
    let seconds = match unit.trim() {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(how.to_owned()),
    };
    Ok(count / seconds)
}
