//! The definition of a limit.

use std::fmt;
use std::time::Duration;

use anyqueue::{Error, IntoPartitionId, MAX_HEADER_NAME_BYTES, MAX_KEY_BYTES, Result};
use serde::{Deserialize, Serialize};

/// The largest cap, and the largest burst.
const MOST: u64 = 1_000_000;
/// The highest rate, in tasks per second.
const FASTEST: f64 = 1_000_000.0;
/// The lowest rate: one task in about a year.
const SLOWEST: f64 = 3e-8;

/// What a limit applies to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Scope {
    /// The tasks of a partition, whoever pulls them.
    Partition(String),
    /// The tasks of a kind, in whatever partition.
    Kind(String),
    /// The tasks with a header of this name, counted separately for each of its values.
    Header(String),
}

impl Scope {
    /// Whether the tasks of this partition are limited.
    pub(super) fn covers(&self, partition: &str) -> bool {
        matches!(self, Self::Partition(name) if name == partition)
    }
}

/// For people: the name of the partition, `kind send_mail`, or `each customer`.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partition(name) => f.write_str(name),
            Self::Kind(kind) => write!(f, "kind {kind}"),
            Self::Header(name) => write!(f, "each {name}"),
        }
    }
}

/// How fast tasks may start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rate {
    /// Tasks per second in the long run.
    pub per_second: f64,
    /// How many tasks may start at once after a pause.
    pub burst: u64,
}

impl Rate {
    /// The time from one task to the next in the long run, rounded up so that the rate is never exceeded.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be positive; saturates"
    )]
    pub(super) fn interval_ns(&self) -> u64 {
        ((1e9 / self.per_second).ceil() as u64).max(1)
    }

    fn check(&self) -> Option<String> {
        let Self { per_second, burst } = *self;
        if !(SLOWEST..=FASTEST).contains(&per_second) {
            return Some(format!("a rate of {per_second} a second: set {SLOWEST} to {FASTEST}"));
        }
        if burst == 0 || burst > MOST {
            return Some(format!("a burst of {burst}: set 1 to {MOST}"));
        }
        let pause = Duration::from_nanos(self.interval_ns()).as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "a burst is at most a million")]
        let full = pause * burst as f64;
        // Times are nanoseconds of Unix time in 64 bits.
        (full > 3e9).then(|| format!("a burst of {burst} that fills up in {full:.0} s: set a smaller one"))
    }
}

/// A limit that the processes of an application share: how many tasks run at once, how fast they start, or
/// both.
///
/// ```
/// use anyqueue_control::limits::Limit;
/// let limit = Limit::partition("mail")?.cap(5).rate(10.0, 20);
/// assert_eq!((limit.most(), limit.starts().map(|rate| rate.burst)), (Some(5), Some(20)));
/// # Ok::<(), anyqueue::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a limit does nothing until it is put"]
pub struct Limit {
    of: Scope,
    cap: Option<u64>,
    rate: Option<Rate>,
}

impl Limit {
    /// Limits the tasks of a partition.
    ///
    /// # Errors
    /// For a name that no partition can have.
    pub fn partition(partition: impl IntoPartitionId) -> Result<Self> {
        let of = Scope::Partition(partition.into_partition_id()?.to_string());
        Ok(Self { of, cap: None, rate: None })
    }

    /// Limits the tasks of a kind, in whatever partition.
    ///
    /// # Errors
    /// For a name that is empty or too long.
    pub fn kind(kind: impl AsRef<str>) -> Result<Self> {
        let kind = kind.as_ref();
        if kind.is_empty() || kind.len() > MAX_KEY_BYTES {
            let text = format!("a kind of {} bytes: give it 1 to {MAX_KEY_BYTES}", kind.len());
            return Err(Error::invalid(text));
        }
        Ok(Self { of: Scope::Kind(kind.to_owned()), cap: None, rate: None })
    }

    /// Limits the tasks that have a header of this name. Each value of the header, such as each customer, has
    /// the cap and the rate for itself. Tasks without the header are not limited.
    ///
    /// ```
    /// use anyqueue_control::limits::Limit;
    /// let limit = Limit::each("customer")?.cap(3);
    /// # Ok::<(), anyqueue::Error>(())
    /// ```
    ///
    /// # Errors
    /// For a name that no header can have.
    pub fn each(header: impl AsRef<str>) -> Result<Self> {
        let header = header.as_ref();
        if header.is_empty() || header.len() > MAX_HEADER_NAME_BYTES {
            let text =
                format!("a header's name of {} bytes: give it 1 to {MAX_HEADER_NAME_BYTES}", header.len());
            return Err(Error::invalid(text));
        }
        Ok(Self { of: Scope::Header(header.to_owned()), cap: None, rate: None })
    }

    /// Sets how many tasks run at once, in all processes together, from 1 to a million. To stop a partition,
    /// pause it.
    pub const fn cap(mut self, most: u64) -> Self {
        self.cap = Some(most);
        self
    }

    /// Sets how many tasks start per second, and how many at once after a pause (`burst`).
    pub const fn rate(mut self, per_second: f64, burst: u64) -> Self {
        self.rate = Some(Rate { per_second, burst });
        self
    }

    /// What the limit applies to.
    #[must_use]
    pub const fn of(&self) -> &Scope {
        &self.of
    }

    /// How many tasks may run at once.
    #[must_use]
    pub const fn most(&self) -> Option<u64> {
        self.cap
    }

    /// How fast tasks may start.
    #[must_use]
    pub const fn starts(&self) -> Option<Rate> {
        self.rate
    }

    pub(super) fn check(&self) -> Result<()> {
        let mut problems = Vec::new();
        match (self.cap, self.rate) {
            (None, None) => problems.push("it limits nothing: set a cap or a rate".to_owned()),
            (Some(0), _) => problems.push("a cap of 0: pause the partition instead".to_owned()),
            (Some(cap), _) if cap > MOST => problems.push(format!("a cap of {cap}: set at most {MOST}")),
            _ => {}
        }
        problems.extend(self.rate.and_then(|rate| rate.check()));
        if problems.is_empty() { Ok(()) } else { Err(Error::invalid(problems.join("; "))) }
    }
}
