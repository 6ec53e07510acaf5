//! Running cases: against a harness, in parallel, each with a deadline and an account.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::Clock;
use futures_util::StreamExt as _;
use futures_util::stream;
use serde::Serialize;

use crate::account;
use crate::case::{Case, Failure, Layer, Need, Offer, Outcome, Stop};
use crate::cases;
use crate::context::Context;
use crate::harness::Harness;
use crate::one_thread;
use crate::report::{About, CaseReport, Report};

/// Cases under way at once unless told otherwise. They mostly wait, so this does not depend on the number of cores.
pub(crate) const PARALLELISM: usize = 16;

/// The account of a case waits for what is owed; beyond this it hangs.
const ACCOUNT_DEADLINE: Duration = Duration::from_mins(1);

/// A call hangs that goes on for so much longer than it was asked to wait. What the case does to a server of its own may take a
/// client longer to notice, so such a case has its deadline alone.
const HUNG: Duration = Duration::from_secs(20);

/// A case at its deadline hangs if no call has begun or ended for so long; else the server is slow.
const STANDSTILL: Duration = Duration::from_secs(5);

/// Between two looks for a call that hangs.
const LOOK: Duration = Duration::from_millis(500);

/// How much a run does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Everything, in sizes for every commit.
    #[default]
    Quick,
    /// Everything, in larger sizes, and cases that take minutes.
    Thorough,
    /// Only the cases that go on for as long as they are given.
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
    pub clause: Option<u8>,
    /// Only cases that need a capability whose name ([`Need::what`]) contains this.
    pub capability: Option<String>,
    /// Cases under way at once; at least 1.
    pub parallelism: usize,
    /// Seeds every random choice.
    pub seed: u64,
    /// How much to do.
    pub tier: Tier,
    /// How long a case of the soak tier goes on.
    pub soak: Duration,
    /// Whether this program can be its own child: its `main` is [`main`](crate::main), or begins with [`run_if_child`].
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
            seed: fastrand::u64(..),
            tier: Tier::Quick,
            soak: Duration::from_mins(10),
            children: false,
        }
    }
}

impl Options {
    /// Everything, in quick sizes, with a random seed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only cases whose id contains `pattern`.
    #[must_use]
    pub fn with_pattern(mut self, pattern: impl Into<String>) -> Self {
        self.pattern = Some(pattern.into());
        self
    }

    /// Only cases of this layer.
    #[must_use]
    pub fn with_layer(mut self, layer: Layer) -> Self {
        self.layer = Some(layer);
        self
    }

    /// Only cases that prove this clause of the contract.
    #[must_use]
    pub fn with_clause(mut self, clause: u8) -> Self {
        self.clause = Some(clause);
        self
    }

    /// Only cases that need a capability whose name contains this, such as `groups` or `dedup`.
    #[must_use]
    pub fn with_capability(mut self, capability: impl Into<String>) -> Self {
        self.capability = Some(capability.into());
        self
    }

    /// Sets how many cases are under way at once.
    #[must_use]
    pub fn with_parallelism(mut self, parallelism: usize) -> Self {
        self.parallelism = parallelism;
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

    /// Sets how long a case of the soak tier goes on.
    #[must_use]
    pub fn with_soak(mut self, soak: Duration) -> Self {
        self.soak = soak;
        self
    }

    /// Runs the cases with child processes too, in a program whose `main` begins with [`run_if_child`](crate::run_if_child).
    #[must_use]
    pub fn with_children(mut self) -> Self {
        self.children = true;
        self
    }

    pub(crate) fn selects(&self, case: &Case) -> bool {
        let needs = |wanted: &String| case.needs.iter().any(|need| need.what.contains(wanted.as_str()));
        let in_tier = if self.tier == Tier::Soak { case.tier == Tier::Soak } else { case.tier <= self.tier };
        in_tier
            && self.pattern.as_ref().is_none_or(|pattern| case.id.contains(pattern))
            && self.layer.is_none_or(|layer| case.layer == layer)
            && self.clause.is_none_or(|clause| case.clauses.contains(&clause))
            && self.capability.as_ref().is_none_or(needs)
    }

    /// Whether something was left out that belongs to the tier.
    pub(crate) fn is_selection(&self) -> bool {
        self.pattern.is_some() || self.layer.is_some() || self.clause.is_some() || self.capability.is_some()
    }

    /// How long a case may take.
    fn deadline(&self, case: &Case) -> Duration {
        if case.tier == Tier::Soak { case.deadline + self.soak } else { case.deadline }
    }
}

/// Runs the selected cases. Must be called within a tokio runtime with several threads.
pub async fn run(harness: Arc<dyn Harness>, options: &Options) -> Report {
    let start = Instant::now();
    let selected: Vec<&Case> = cases::all().filter(|case| options.selects(case)).collect();
    let running = selected.into_iter().map(|case| run_case(harness.clone(), case, options));
    let mut cases: Vec<CaseReport> =
        stream::iter(running).buffer_unordered(options.parallelism.max(1)).collect().await;
    cases.sort_by_key(|case| case.id);
    let about = About::of(&*harness, &cases).await;
    Report::new(about, options, start.elapsed(), cases)
}

/// Runs one case to its verdict. Never hangs, never panics.
pub async fn run_case(harness: Arc<dyn Harness>, case: &'static Case, options: &Options) -> CaseReport {
    let start = Instant::now();
    let outcome = if case.one_thread {
        let patience = options.deadline(case) + ACCOUNT_DEADLINE;
        one_thread::run(harness, case, options, patience).await
    } else {
        verdict(harness, case, options).await
    };
    CaseReport::new(case, outcome, start.elapsed())
}

/// Runs one case in this runtime.
pub(crate) async fn verdict(harness: Arc<dyn Harness>, case: &'static Case, options: &Options) -> Outcome {
    match Context::open(harness, case, options).await {
        Ok(context) => {
            let mut outcome = judge(&context, case, options).await;
            if let Outcome::Fail(failure) = &mut outcome {
                failure.likely = case.kills.iter().map(|fault| fault.what()).collect();
            }
            context.close().await;
            outcome
        }
        Err(error) => fail(38, "the backend to open and initialise", &error.to_string(), Vec::new()),
    }
}

async fn judge(context: &Arc<Context>, case: &'static Case, options: &Options) -> Outcome {
    if let Some(unmet) = unmet(context, case, options) {
        return unmet;
    }
    let run = case.run;
    let in_case = context.clone();
    let body = within(context, options.deadline(case), async move { run(&in_case).await }).await;
    let observations = context.history().observations();
    if let Err(stop) = body {
        return stop.into();
    }
    if observations == 0 {
        return Outcome::Inconclusive { why: "the case ran to its end but observed nothing".to_owned() };
    }
    let in_account = context.clone();
    match within(context, ACCOUNT_DEADLINE, async move { account::close(&in_account).await }).await {
        Ok(()) => Outcome::Pass,
        Err(stop) => stop.into(),
    }
}

fn unmet(context: &Context, case: &Case, options: &Options) -> Option<Outcome> {
    let missing = |need: &&Need| !(need.declared)(context.capabilities());
    if let Some(need) = case.needs.iter().find(missing) {
        return Some(context.undeclared(need));
    }
    let withheld = |need: &&Need| match need.offer {
        Some(Offer::Children) => !options.children || !context.can_spawn(),
        Some(Offer::Victim) => context.victim().is_none(),
        Some(Offer::Clock) => context.harness().open_on("probe", Clock::system()).is_none(),
        Some(Offer::Skew) => context.harness().open_skewed("probe", Clock::system()).is_none(),
        Some(Offer::Foreign) => !context.stores_bytes(),
        Some(Offer::Corruption) => !context.harness().corrupts(),
        None => false,
    };
    let need = case.needs.iter().find(withheld)?;
    let rule = match need.offer {
        Some(Offer::Foreign) => "it keeps the fields of messages, so bytes of others cannot be in it",
        Some(Offer::Corruption) => "it keeps no message in a form that could be damaged",
        Some(Offer::Skew) => {
            context.harness().rule(need).unwrap_or("its harness gives no client a clock of its own")
        }
        _ => return Some(not_offered(need.what)),
    };
    Some(Outcome::NotApplicable { needs: need.what.to_owned(), declared: true, rule: Some(rule) })
}

/// Runs a part of a case in a task of its own, so that a panic is a verdict, and with a deadline, so that a hang is one.
async fn within(
    context: &Context,
    deadline: Duration,
    part: impl Future<Output = Result<(), Stop>> + Send + 'static,
) -> Result<(), Stop> {
    let task = tokio::spawn(part);
    let abort = task.abort_handle();
    let ended = tokio::select! {
        biased;
        ended = task => ended,
        stop = overdue(context, deadline) => {
            abort.abort();
            return Err(stop);
        }
    };
    match ended {
        Ok(answer) => answer,
        Err(panic) => Err(context.failed(40, &[], "no panic", panic.to_string())),
    }
}

/// Why the case cannot go on: a call hangs, or its time is over.
async fn overdue(context: &Context, deadline: Duration) -> Stop {
    let (start, history) = (Instant::now(), context.history());
    let hangs = |seen| context.failed(40, &[], "every call to end in bounded time", seen);
    loop {
        let left = deadline.saturating_sub(start.elapsed());
        if left.is_zero() {
            break;
        }
        tokio::time::sleep(LOOK.min(left)).await;
        if let Some(call) = history.overdue(HUNG).filter(|_| context.victim().is_none()) {
            return hangs(format!("hung for {HUNG:?} longer than it was asked to wait: {call}"));
        }
    }
    let last = history.under_way();
    let stands = history.quiet_for() > STANDSTILL;
    match (stands, last) {
        (true, Some(call)) => hangs(format!("hung after {deadline:?}; last: {call}")),
        (true, None) => hangs(format!("hung after {deadline:?}, with no call under way")),
        (false, _) => Stop::Inconclusive(format!(
            "every call ended, but all of them together took longer than the {deadline:?} that the case has: the server or this \
             machine is slow; fewer cases at once may help"
        )),
    }
}

/// The backend may well have it, but this run cannot see.
fn not_offered(what: &str) -> Outcome {
    Outcome::NotApplicable { needs: format!("{what} (offered by the harness)"), declared: false, rule: None }
}

pub(crate) fn fail(clause: u8, expected: &str, seen: &str, history: Vec<String>) -> Outcome {
    let (expected, seen) = (expected.to_owned(), seen.to_owned());
    Outcome::Fail(Failure { clause, expected, seen, history, likely: Vec::new() })
}

impl From<Stop> for Outcome {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Fail(failure) => Self::Fail(*failure),
            Stop::NotApplicable(needs) => not_offered(&needs),
            Stop::Inconclusive(why) => Self::Inconclusive { why },
        }
    }
}
