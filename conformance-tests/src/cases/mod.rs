//! All cases: a folder for each layer, in it a file for each group.
//!
//! # How to add a case
//! Write an `async fn(c: &Context) -> CaseResult` in its group's file and a line in the file's `CASES`:
//!
//! ```text
//! case!(Storage, "push.single", [Stored, ContentIntact], single).needs(&[Need::Groups]).kills(&[Fault::DropsEmpty]),
//! //    layer    id             clauses                  function
//! ```
//!
//! - The id is `group.name`, and stays forever. A new file joins `GROUPS` of its layer's folder.
//! - Layer `Storage` means nothing but the recorder between case and adapter; for `Queue`, build one over
//!   `c.client().storage().clone()`, which records what reaches the adapter.
//! - `needs` are declared capabilities; add a variant to [`Need`](crate::Need) for a new one. What every
//!   backend must offer needs nothing.
//! - `kills` names faulty adapters that the case must fail on, each in [`Fault`](crate::Fault). A fault that
//!   no case names fails `faults/tests/kills.rs`, and so does a case that names one and passes on it.
//! - `.on_one_thread()` runs the case, with its clients and queues, on a single-threaded runtime of its own.
//!
//! What a case can use:
//! - `c.client()` (the first client) and `c.fresh().await?` (another one, independent); `c.partition("work")?`;
//!   `c.message()` and `c.messages(n, |index, message| message.with_priority(1))`: each body is unique.
//! - `client.push`, `take(&p, n)` (exactly n, must come), `take_exact::<2>(&p)` (as an array), `pull`,
//!   `pull_now`, `pull_with(&p, request)`, `nothing(&p, during, clause, "why")`, `settle_all`, `remove`,
//!   `try_settle`, `extend`. They end the case on answers that no correct backend gives. `client.storage()`
//!   returns everything unjudged.
//! - Judgements: `c.check(clause, &[ids], ok, "expected", "seen")?`, `c.equal`, `c.in_order`, `c.same`, `c.error`,
//!   `c.took`, `c.ok`. Each names the clause; `about` chooses whose history is shown (all if empty).
//! - `c.timing()`: `lease` (one that expires), `long_lease` (lasts for the whole case), `delay`, `slack`,
//!   `soon` (must come by then), `never()` (must not come until then), `latest(d)`. Use no other literals for
//!   time.
//! - `c.size(quick, thorough)`, `c.lasting(quick, thorough)`, `c.random()`, `c.spawn(&Role::Pusher { .. })`.
//!
//! Rules: use exact counts, never "at least one"; add [`scheduling`](crate::scheduling) to upper bounds of
//! time (`soon` includes it), and nothing to lower bounds; wait for events, not for time to pass, except to
//! see that something does *not* come. Release or settle what you hold under `long_lease`, or leave it: the
//! account does so. After the case's function, the account drains everything and judges the history by every
//! invariant in `check`: lost, ghost, twice, altered, two owners, out of order. The case itself must judge
//! whatever it does without the recorder (another `Queue`'s own promises, child processes with roles of their
//! own).

macro_rules! case {
    ($layer:ident, $id:literal, [$($clause:ident),+], $run:path) => {
        $crate::case::Case::new($id, $crate::options::Layer::$layer, &[$($crate::clause::Clause::$clause),+], |c| Box::pin($run(c)))
    };
}

mod queue;
mod recovery;
mod storage;

use crate::case::Case;

/// Every case of both layers and all tiers.
pub fn all() -> impl Iterator<Item = &'static Case> {
    storage::GROUPS.iter().chain(queue::GROUPS).flat_map(|group| group.iter())
}
