//! The settings of a supervisor.

use std::time::Duration;

use anyqueue::{Error, Result};

/// The exit code of a process that should be restarted at once.
pub const RECYCLE_EXIT_CODE: u8 = 6;

/// How a supervisor treats its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SupervisorOptions {
    /// The pause after the first failure; it doubles with each further one. Default: 1 s.
    pub first_pause: Duration,
    /// The longest pause. Default: 30 s.
    pub longest_pause: Duration,
    /// A process that lived for this long starts over with the first pause. Default: 1 min.
    pub steady_after: Duration,
    /// A failure counts towards giving up if the process lived for less than this. Default: 10 s.
    pub least_life: Duration,
    /// The supervisor gives up when every process has failed this often in a row. Default: 8, which takes
    /// about a minute and a half.
    pub most_failures: u32,
    /// How long a process may take to end after the first SIGTERM before it is killed. Default: 1 min.
    pub grace: Duration,
    /// The time between looks into the registry, which should be the time between the workers' beats. A
    /// process hangs if three looks in a row find its beats missing. Default: 5 s.
    pub look_every: Duration,
    /// How long a process may take until its first beat. Default: 1 min.
    pub start_within: Duration,
}

impl Default for SupervisorOptions {
    fn default() -> Self {
        Self {
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
            steady_after: Duration::from_mins(1),
            least_life: Duration::from_secs(10),
            most_failures: 8,
            grace: Duration::from_mins(1),
            look_every: Duration::from_secs(5),
            start_within: Duration::from_mins(1),
        }
    }
}

impl SupervisorOptions {
    /// Sets [`first_pause`](Self::first_pause) and [`longest_pause`](Self::longest_pause).
    #[must_use]
    pub const fn with_pauses(mut self, first: Duration, longest: Duration) -> Self {
        (self.first_pause, self.longest_pause) = (first, longest);
        self
    }

    /// Sets [`steady_after`](Self::steady_after).
    #[must_use]
    pub const fn with_steady_after(mut self, life: Duration) -> Self {
        self.steady_after = life;
        self
    }

    /// Sets [`most_failures`](Self::most_failures), of processes that live for less than
    /// [`least_life`](Self::least_life).
    #[must_use]
    pub const fn with_most_failures(mut self, failures: u32, least_life: Duration) -> Self {
        (self.most_failures, self.least_life) = (failures, least_life);
        self
    }

    /// Sets [`grace`](Self::grace).
    #[must_use]
    pub const fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets [`look_every`](Self::look_every).
    #[must_use]
    pub const fn with_look_every(mut self, every: Duration) -> Self {
        self.look_every = every;
        self
    }

    /// Sets [`start_within`](Self::start_within).
    #[must_use]
    pub const fn with_start_within(mut self, time: Duration) -> Self {
        self.start_within = time;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.look_every.is_zero() {
            return Err(Error::invalid("a look into the registry every 0 s: leave time between two"));
        }
        if self.most_failures == 0 {
            return Err(Error::invalid("giving up after 0 failures: allow at least 1"));
        }
        if self.first_pause.is_zero() || self.first_pause > self.longest_pause {
            return Err(Error::invalid(
                "the first pause after a failure is to be more than 0, and no more than the longest",
            ));
        }
        Ok(())
    }
}
