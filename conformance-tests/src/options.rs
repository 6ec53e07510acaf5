//! What to run, and how.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::clause::Clause;
use serde::Serialize;

/// How many cases run at once unless configured otherwise. They mostly wait, so this does not depend on the
/// number of cores.
pub(crate) const PARALLELISM: usize = 16;

/// How often a case is run, unless configured otherwise, if it proves nothing or if something came late: a busy
/// machine can make it miss the moment that matters.
const ATTEMPTS: u32 = 4;

/// The layer between a case and the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// No layer. These cases prove the clauses that an adapter must keep by itself.
    Storage,
    /// The portable `Queue`. These cases prove the clauses that core keeps over any adapter.
    Queue,
}

/// How much a run does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Everything, small enough to run for every commit.
    #[default]
    Quick,
    /// Everything in larger sizes, and the cases that take minutes.
    Thorough,
    /// Only the cases that run for a set time.
    Soak,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quick => "quick",
            Self::Thorough => "thorough",
            Self::Soak => "soak",
        })
    }
}

impl FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "quick" => Ok(Self::Quick),
            "thorough" => Ok(Self::Thorough),
            "soak" => Ok(Self::Soak),
            other => Err(format!("{other:?} is no tier: use quick, thorough or soak")),
        }
    }
}

/// What to run, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Only cases whose id contains this.
    pub pattern: Option<String>,
    /// Only cases of this layer.
    pub layer: Option<Layer>,
    /// Only cases that prove this clause.
    pub clause: Option<Clause>,
    /// Only cases that need a capability whose name ([`Need::what`](crate::Need::what)) contains this.
    pub capability: Option<String>,
    /// How many cases run at once; at least 1.
    pub parallelism: usize,
    /// How often a case is run at most, if it proves nothing or if something came late; at least 1.
    pub attempts: u32,
    /// The seed of every random choice.
    pub seed: u64,
    /// How much to do.
    pub tier: Tier,
    /// How long a case of the soak tier runs.
    pub soak: Duration,
    /// Whether this program can be its own child: its `main` is [`main`](crate::main), or begins with
    /// [`run_if_child`].
    ///
    /// [`run_if_child`]: crate::run_if_child
    pub(crate) children: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pattern: None,
            layer: None,
            clause: None,
            capability: None,
            parallelism: PARALLELISM,
            attempts: ATTEMPTS,
            seed: fastrand::u64(..),
            tier: Tier::Quick,
            soak: Duration::from_mins(10),
            children: false,
        }
    }
}

impl Options {
    /// Returns options that run everything, in quick sizes, with a random seed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects only cases whose id contains `pattern`.
    #[must_use]
    pub fn with_pattern(mut self, pattern: impl Into<String>) -> Self {
        self.pattern = Some(pattern.into());
        self
    }

    /// Selects only cases of this layer.
    #[must_use]
    pub fn with_layer(mut self, layer: Layer) -> Self {
        self.layer = Some(layer);
        self
    }

    /// Selects only cases that prove this clause of the contract.
    #[must_use]
    pub fn with_clause(mut self, clause: Clause) -> Self {
        self.clause = Some(clause);
        self
    }

    /// Selects only cases that need a capability whose name contains this, such as `groups` or `dedup`.
    #[must_use]
    pub fn with_capability(mut self, capability: impl Into<String>) -> Self {
        self.capability = Some(capability.into());
        self
    }

    /// Sets how many cases run at once.
    #[must_use]
    pub fn with_parallelism(mut self, parallelism: usize) -> Self {
        self.parallelism = parallelism;
        self
    }

    /// Sets how often a case is run at most, if it proves nothing or if something came late. With 1, whatever is late
    /// once breaks its clause.
    #[must_use]
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets the seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the tier.
    #[must_use]
    pub fn with_tier(mut self, tier: Tier) -> Self {
        self.tier = tier;
        self
    }

    /// Sets how long a case of the soak tier runs.
    #[must_use]
    pub fn with_soak(mut self, soak: Duration) -> Self {
        self.soak = soak;
        self
    }

    /// Also runs the cases with child processes, in a program whose `main` begins with
    /// [`run_if_child`](crate::run_if_child).
    #[must_use]
    pub fn with_children(mut self) -> Self {
        self.children = true;
        self
    }

    /// Returns whether something that belongs to the tier was left out.
    pub(crate) fn is_selection(&self) -> bool {
        self.pattern.is_some() || self.layer.is_some() || self.clause.is_some() || self.capability.is_some()
    }
}
