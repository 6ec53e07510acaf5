//! What a case is.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::{Need, Offer};
use crate::options::{Layer, Options, Tier};
use crate::verdict::CaseResult;

/// The future of a case's function.
pub type CaseFuture<'a> = Pin<Box<dyn Future<Output = CaseResult> + Send + 'a>>;

/// One thing that the suite proves. The `case!` macro builds it, as a constant in its group's file.
#[derive(Clone, Copy)]
pub struct Case {
    /// The case's name, `group.name`; stable across releases.
    pub id: &'static str,
    /// The clauses of the contract that the case proves.
    pub clauses: &'static [Clause],
    /// The layer between the case and the adapter.
    pub layer: Layer,
    /// What the backend or the harness must offer.
    pub needs: &'static [Need],
    /// The faults that this case must find.
    pub kills: &'static [Fault],
    /// The smallest tier that runs it.
    pub tier: Tier,
    /// How long the case may take. Nearly all cases need far less.
    pub deadline: Duration,
    /// Whether the case runs on a single-threaded runtime, where a call that blocks the thread holds up
    /// everything.
    pub one_thread: bool,
    /// The case's function.
    pub run: for<'a> fn(&'a Context) -> CaseFuture<'a>,
}

impl Case {
    /// Creates a case without needs, for every tier, that may take 30 s.
    pub const fn new(
        id: &'static str,
        layer: Layer,
        clauses: &'static [Clause],
        run: for<'a> fn(&'a Context) -> CaseFuture<'a>,
    ) -> Self {
        let deadline = Duration::from_secs(30);
        Self {
            id,
            clauses,
            layer,
            needs: &[],
            kills: &[],
            tier: Tier::Quick,
            deadline,
            one_thread: false,
            run,
        }
    }

    /// Sets what the case needs.
    #[must_use]
    pub const fn needs(mut self, needs: &'static [Need]) -> Self {
        self.needs = needs;
        self
    }

    /// Names the faults that the case must find.
    #[must_use]
    pub const fn kills(mut self, kills: &'static [Fault]) -> Self {
        self.kills = kills;
        self
    }

    /// Gives the case more (or less) time.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs the case, its clients and its queues on a single-threaded runtime of its own.
    #[must_use]
    pub const fn on_one_thread(mut self) -> Self {
        self.one_thread = true;
        self
    }

    /// Runs the case in the thorough tier only.
    #[must_use]
    pub const fn thorough(mut self) -> Self {
        self.tier = Tier::Thorough;
        self
    }

    /// Runs the case in the soak tier only, for as long as the soak is set to last.
    #[must_use]
    pub const fn soak(mut self) -> Self {
        self.tier = Tier::Soak;
        self
    }

    /// Returns whether the case needs the harness to offer this.
    pub fn needs_offer(&self, offer: Offer) -> bool {
        self.needs.iter().any(|need| need.offer() == Some(offer))
    }

    /// Returns the part of the id before the dot.
    pub fn group(&self) -> &'static str {
        self.id.split_once('.').map_or(self.id, |(group, _)| group)
    }

    /// Returns whether a run with these options includes the case.
    pub(crate) fn is_selected(&self, options: &Options) -> bool {
        let needs = |wanted: &String| self.needs.iter().any(|need| need.what().contains(wanted.as_str()));
        let in_tier =
            if options.tier == Tier::Soak { self.tier == Tier::Soak } else { self.tier <= options.tier };
        in_tier
            && options.pattern.as_ref().is_none_or(|pattern| self.id.contains(pattern))
            && options.layer.is_none_or(|layer| self.layer == layer)
            && options.clause.is_none_or(|clause| self.clauses.contains(&clause))
            && options.capability.as_ref().is_none_or(needs)
    }

    /// Returns how long the case may take in a run with these options.
    pub(crate) fn time_limit(&self, options: &Options) -> Duration {
        if self.tier == Tier::Soak { self.deadline + options.soak } else { self.deadline }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("id", &self.id).field("clauses", &self.clauses).finish_non_exhaustive()
    }
}
