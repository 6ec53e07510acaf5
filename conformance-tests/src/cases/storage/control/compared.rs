//! A change is made if the entry is as expected; otherwise it returns what is there.

use anyqueue::control::{Applied, Change, Expect, Key};

use super::{BRIEF, Entries, LONG, NEEDS, after, key, put, short, value_of};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "control.expectations", [EntryCompared, EntryLapses], expectations).needs(NEEDS).kills(&[
        Fault::EntryVersionIgnored,
        Fault::EntryVersionForPresence,
        Fault::EntryAbsentIgnored,
        Fault::EntryDeleteUnasked,
        Fault::EntryDeleteOfNothing,
        Fault::EntryAnyKeeps,
        Fault::EntryConflictWrites,
        Fault::LapsedEntryBlocks,
        Fault::LapsedEntryMatches,
        Fault::LapsedEntryTold,
    ]),
    case!(Storage, "control.conflicts", [EntryCompared], conflicts).needs(NEEDS).kills(&[
        Fault::EntryConflictSilent,
        Fault::EntryConflictTellsNew,
        Fault::EntryConflictWrites,
        Fault::EntryEndUntold,
    ]),
    case!(Storage, "control.former_versions", [EntryCompared], former_versions)
        .needs(NEEDS)
        .kills(&[Fault::EntryFormerVersion, Fault::EntryKeepsVersion]),
    case!(Storage, "control.in_one_call", [EntryCompared], in_one_call)
        .needs(NEEDS)
        .kills(&[Fault::EntriesSeeStart, Fault::EntryKeepsVersion]),
    case!(Storage, "control.conflict_among_others", [EntryCompared], conflict_among_others)
        .needs(NEEDS)
        .kills(&[
            Fault::EntriesAllOrNone,
            Fault::EntriesStopAtConflict,
            Fault::EntryResultsReversed,
            Fault::EntryEleventhLost,
        ]),
];

/// What is under a key when the change comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    NeverThere,
    There,
    Deleted,
    Lapsed,
}

const STATES: [State; 4] = [State::NeverThere, State::There, State::Deleted, State::Lapsed];

/// One pair of a state and a change.
struct Pair {
    state: State,
    /// What was written before, if anything.
    former: Change,
    change: Change,
    is_right: bool,
}

/// Returns every change that expects something, on this state.
fn pairs_of(state: State) -> CaseResult<Vec<Pair>> {
    let mut pairs = Vec::new();
    for (number, expected) in ["any", "absent", "own", "other"].into_iter().enumerate() {
        for deletes in [false, true] {
            if deletes && expected == "absent" {
                continue; // core refuses it
            }
            let name = key(&format!("{state:?}/{expected}/{deletes}/{number}"))?;
            let former = put(&name, Expect::Any);
            let expect = match expected {
                "any" => Expect::Any,
                "absent" => Expect::Absent,
                "own" => after(&former),
                _ => after(&put(&name, Expect::Any)),
            };
            let there = state == State::There;
            let is_right = match expected {
                "any" => true,
                "absent" => !there,
                "own" => there,
                _ => false,
            };
            let change =
                if deletes { Change::delete(name, expect) } else { Change::put(name, expect, "the change") };
            pairs.push(Pair { state, former, change, is_right });
        }
    }
    Ok(pairs)
}

/// Brings the key into its state.
async fn prepare(entries: &Entries<'_>, pair: &Pair) -> CaseResult {
    let delete = Change::delete(pair.change.key().clone(), Expect::Any);
    match pair.state {
        State::NeverThere => Ok(()),
        State::There => entries.done(std::slice::from_ref(&pair.former)).await,
        State::Deleted => entries.done(&[pair.former.clone(), delete]).await,
        State::Lapsed => entries.done(&[pair.former.clone().with_ttl(BRIEF)]).await,
    }
}

/// Judges the result of the change, and what is there then.
async fn judge(c: &Context, entries: &Entries<'_>, pair: &Pair) -> CaseResult {
    let key = pair.change.key();
    let result = entries.one_applied(&pair.change).await?;
    let was_there = pair.state == State::There;
    if pair.is_right {
        let told = format!("Done: {key} is as {:?}", pair.change.expect());
        c.check(Clause::EntryCompared, &[], result.is_done(), told, short(&result))?;
        return match &pair.change {
            Change::Put { .. } => entries.has(Clause::EntryCompared, &pair.change).await,
            _ => entries.lacks(Clause::EntryCompared, key, "it was deleted").await,
        };
    }
    let told = format!("a conflict: {key} expects {:?}", pair.change.expect());
    let Applied::Conflict(there) = result else {
        return Err(c.failed(Clause::EntryCompared, &[], told, "Done"));
    };
    if was_there {
        entries.same(Clause::EntryCompared, "in a conflict", &pair.former, there.as_ref())?;
        return entries.has(Clause::EntryCompared, &pair.former).await;
    }
    c.check(Clause::EntryCompared, &[], there.is_none(), "a conflict with nothing", format!("{there:?}"))?;
    entries.lacks(Clause::EntryCompared, key, "the change was a conflict").await
}

/// Every expectation meets every state: an absent entry was never there, was deleted, or has expired.
async fn expectations(c: &Context) -> CaseResult {
    let entries = Entries::first(c)?;
    let mut pairs = Vec::new();
    for state in STATES {
        pairs.extend(pairs_of(state)?);
    }
    for pair in &pairs {
        prepare(&entries, pair).await?;
    }
    entries.until(entries.now().await? + BRIEF).await?;
    for pair in &pairs {
        judge(c, &entries, pair).await?;
    }
    Ok(())
}

/// A conflict returns the whole entry that is there, and leaves it as it is.
async fn conflicts(c: &Context) -> CaseResult {
    let (entries, name) = (Entries::first(c)?, key("there")?);
    for ttl in [None, Some(LONG)] {
        let bare = Change::put(name.clone(), Expect::Any, format!("kept for {ttl:?}"));
        let written = ttl.map_or_else(|| bare.clone(), |ttl| bare.clone().with_ttl(ttl));
        entries.done(std::slice::from_ref(&written)).await?;
        let before = entries.one(&name).await?;
        let other = after(&put(&name, Expect::Any));
        let refused = [
            put(&name, Expect::Absent),
            put(&name, other).with_ttl(BRIEF),
            Change::put(name.clone(), other, ""),
            Change::delete(name.clone(), other),
        ];
        for change in refused {
            let there = entries.conflict(&change).await?;
            entries.same(Clause::EntryCompared, "in a conflict", &written, there.as_ref())?;
            c.equal(Clause::EntryCompared, &[], "what the conflict returns:", &before, &there)?;
            let still = entries.one(&name).await?;
            c.equal(Clause::EntryCompared, &[], "the entry after a conflict:", &before, &still)?;
        }
        let ends = before.as_ref().is_some_and(|entry| entry.expires_at.is_some());
        c.equal(Clause::EntryCompared, &[], "whether it lapses:", &ttl.is_some(), &ends)?;
    }
    Ok(())
}

/// A version that the entry no longer has is not accepted: after it was overwritten, deleted, or written
/// again with the same value.
async fn former_versions(c: &Context) -> CaseResult {
    let (entries, name) = (Entries::first(c)?, key("again")?);
    let mut former: Vec<Change> = Vec::new();
    for round in 0..6 {
        let expect = match round % 3 {
            0 => Expect::Absent,
            1 => former.last().map_or(Expect::Any, after),
            _ => Expect::Any,
        };
        let written = Change::put(name.clone(), expect, "the same");
        entries.done(std::slice::from_ref(&written)).await?;
        for old in &former {
            for change in [put(&name, after(old)), Change::delete(name.clone(), after(old))] {
                let there = entries.conflict(&change).await?;
                entries.same(Clause::EntryCompared, "in a conflict", &written, there.as_ref())?;
            }
        }
        former.push(written.clone());
        if round % 3 == 2 {
            entries.done(&[Change::delete(name.clone(), after(&written))]).await?;
            for old in &former {
                let there = entries.conflict(&put(&name, after(old))).await?;
                c.check(Clause::EntryCompared, &[], there.is_none(), "nothing", format!("{there:?}"))?;
            }
        }
    }
    Ok(())
}

/// A later change of a call finds what an earlier one left under the same key.
async fn in_one_call(c: &Context) -> CaseResult {
    let (entries, name) = (Entries::first(c)?, key("steps")?);
    let first = Change::put(name.clone(), Expect::Absent, "first");
    let second = Change::put(name.clone(), after(&first), "second");
    let third = Change::put(name.clone(), Expect::Absent, "third");
    let calls = [
        first.clone(),
        put(&name, Expect::Absent),
        second.clone(),
        put(&name, after(&first)),
        Change::delete(name.clone(), after(&second)),
        Change::delete(name.clone(), after(&second)),
        Change::delete(name.clone(), Expect::Any),
        third.clone(),
    ];
    let results = entries.apply(&calls).await?.value;
    let told: Vec<_> = results
        .iter()
        .map(|result| match result {
            Applied::Done => "done".to_owned(),
            Applied::Conflict(None) => "nothing there".to_owned(),
            Applied::Conflict(Some(entry)) => String::from_utf8_lossy(&entry.value).into_owned(),
        })
        .collect();
    let expected = ["done", "first", "done", "second", "done", "nothing there", "done", "done"];
    c.equal(Clause::EntryCompared, &[], "the results:", &expected.map(str::to_owned).to_vec(), &told)?;
    entries.has(Clause::EntryCompared, &third).await?;
    let value = String::from_utf8_lossy(value_of(&third)).into_owned();
    c.equal(Clause::EntryCompared, &[], "what is left:", &"third".to_owned(), &value)
}

/// Conflicting changes do not affect others of the call, before or behind them, and each result is at the
/// position of its change.
async fn conflict_among_others(c: &Context) -> CaseResult {
    let entries = Entries::first(c)?;
    let taken = key("taken")?;
    let owner = put(&taken, Expect::Absent);
    entries.done(std::slice::from_ref(&owner)).await?;
    let names: Vec<Key> = super::numbered("free/", 24)?;
    let is_refused = |number: usize| [0, 5, 6, 17].contains(&number);
    let changes: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(number, name)| put(if is_refused(number) { &taken } else { name }, Expect::Absent))
        .collect();
    let results = entries.apply(&changes).await?.value;
    for (number, (change, result)) in changes.iter().zip(&results).enumerate() {
        let told = format!("the result of change {number}, on {}", change.key());
        let right = result.is_done() != is_refused(number);
        c.check(Clause::EntryCompared, &[], right, told, short(result))?;
        if let Applied::Conflict(there) = result {
            entries.same(Clause::EntryCompared, "in a conflict", &owner, there.as_ref())?;
        }
    }
    for (number, change) in changes.iter().enumerate().filter(|(number, _)| !is_refused(*number)) {
        let found = entries.one(change.key()).await?;
        entries.same(
            Clause::EntryCompared,
            &format!("written as change {number}"),
            change,
            found.as_ref(),
        )?;
    }
    entries.has(Clause::EntryCompared, &owner).await
}
