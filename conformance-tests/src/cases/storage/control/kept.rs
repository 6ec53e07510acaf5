//! What is written comes back the same, under its own key, until it is changed.

use anyqueue::control::{
    Change, Expect, MAX_CONTROL_CALL_BYTES, MAX_CONTROL_CHANGES, MAX_CONTROL_KEY_BYTES,
    MAX_CONTROL_VALUE_BYTES,
};

use super::{Entries, NEEDS, after, key, keys_of, numbered, put, versioned};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "control.put_get_delete", [EntryKept, EntryCompared], put_get_delete).needs(NEEDS).kills(
        &[
            Fault::EntryDeleteForgotten,
            Fault::EntryVersionOfServer,
            Fault::EntryAnyKeeps,
            Fault::EntryKeepsVersion,
            Fault::EntryDeleteOfNothing,
        ],
    ),
    case!(Storage, "control.values", [EntryKept], values).needs(NEEDS).kills(&[
        Fault::EntryValueCut,
        Fault::EntryValueAsText,
        Fault::EntryEmptyAbsent,
        Fault::EntriesListedEmpty,
    ]),
    case!(Storage, "control.versions", [EntryKept, EntryCompared], versions).needs(NEEDS).kills(&[
        Fault::EntryVersionIn32Bits,
        Fault::EntryVersionAsDouble,
        Fault::EntryVersionSigned,
    ]),
    case!(Storage, "control.keys", [EntryKept], keys).needs(NEEDS).kills(&[
        Fault::EntryKeysCaseless,
        Fault::EntryKeysTrimmed,
        Fault::EntryKeysCut,
    ]),
    case!(Storage, "control.many_keys", [EntryKept], many_keys).needs(NEEDS).kills(&[
        Fault::EntriesFoundSorted,
        Fault::EntriesFoundOnly,
        Fault::EntriesFoundOnce,
    ]),
    case!(Storage, "control.large_calls", [EntryKept, EntryCompared], large_calls)
        .needs(NEEDS)
        .kills(&[Fault::EntryEleventhLost, Fault::EntryValueCut]),
];

/// An entry is created, found, overwritten, found again, and deleted; and then the same again.
async fn put_get_delete(c: &Context) -> CaseResult {
    let (entries, name) = (Entries::first(c)?, key("worker/1")?);
    entries.lacks(Clause::EntryKept, &name, "nobody wrote it").await?;
    entries.done(&[Change::delete(name.clone(), Expect::Any)]).await?;
    for round in 0..2 {
        let created = put(&name, Expect::Absent);
        entries.done(std::slice::from_ref(&created)).await?;
        entries.has(Clause::EntryKept, &created).await?;
        let overwritten = Change::put(name.clone(), after(&created), format!("round {round}"));
        entries.done(std::slice::from_ref(&overwritten)).await?;
        entries.has(Clause::EntryKept, &overwritten).await?;
        let unasked = Change::put(name.clone(), Expect::Any, "unasked");
        entries.done(std::slice::from_ref(&unasked)).await?;
        entries.has(Clause::EntryKept, &unasked).await?;
        entries.lists("", 10, std::slice::from_ref(&name)).await?;
        let expect = if round == 0 { after(&unasked) } else { Expect::Any };
        entries.done(&[Change::delete(name.clone(), expect)]).await?;
        entries.lacks(Clause::EntryKept, &name, "it was deleted").await?;
    }
    Ok(())
}

/// An empty value, every byte, and the largest value come back byte for byte, found, listed and in a
/// conflict.
async fn values(c: &Context) -> CaseResult {
    let entries = Entries::first(c)?;
    let all_bytes: Vec<u8> = (0..=u8::MAX).collect();
    let values: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0],
        b"\0\0".to_vec(),
        b" text ".to_vec(),
        all_bytes.clone(),
        b"{\"format\":1}\n".to_vec(),
        b"\xff\xfe".to_vec(),
        vec![b'x'; (64 << 10) + 1],
        all_bytes.into_iter().cycle().take(MAX_CONTROL_VALUE_BYTES).collect(),
    ];
    for (number, value) in values.into_iter().enumerate() {
        let name = key(&format!("value/{number}"))?;
        let written = Change::put(name.clone(), Expect::Absent, value);
        entries.done(std::slice::from_ref(&written)).await?;
        entries.has(Clause::EntryKept, &written).await?;
        let listed = entries.page(name.as_str(), 1, None).await?.value;
        entries.same(Clause::EntryKept, "listed", &written, listed.first())?;
        let there = entries.conflict(&put(&name, Expect::Absent)).await?;
        entries.same(Clause::EntryKept, "in a conflict", &written, there.as_ref())?;
    }
    Ok(())
}

/// Versions have 64 bits: none is mistaken for its neighbour.
async fn versions(c: &Context) -> CaseResult {
    let (entries, name) = (Entries::first(c)?, key("versions")?);
    let edges = [1, 1 << 32, 1 << 53, (1 << 63) - 1, 1 << 63, u64::MAX - 1];
    for version in edges.into_iter().flat_map(|edge| [edge, edge + 1]) {
        let written = versioned(&name, version, "v");
        entries.done(std::slice::from_ref(&written)).await?;
        entries.has(Clause::EntryKept, &written).await?;
        for other in [version ^ 1, version ^ (1 << 32), version ^ (1 << 63), version.wrapping_add(1)] {
            let change = put(&name, after(&versioned(&name, other, "")));
            let there = entries.conflict(&change).await?;
            entries.same(Clause::EntryCompared, "in a conflict", &written, there.as_ref())?;
        }
        entries.done(&[put(&name, after(&written))]).await?;
    }
    Ok(())
}

/// Keys that differ in one thing: case, a space, a letter at the very end, how an accent is written.
fn alike() -> Vec<String> {
    let words = [
        "key",
        "KEY",
        "Key",
        "key ",
        "key  ",
        " key",
        "key/",
        "key%",
        "key_",
        "key\\",
        "kéy",
        "ke\u{301}y",
        "KÉY",
        "straße",
        "strasse",
        "'key'",
        "\"key\"",
        "key;--",
        "{key}",
        "key\u{10FFFF}",
        "key\u{FFFD}",
        "ключ",
        "鍵",
        "🔑",
        "ı",
        "i",
        "İ",
        "I",
    ];
    let long = "k".repeat(MAX_CONTROL_KEY_BYTES - 1);
    let longest = ["a", "b", "A"].map(|last| format!("{long}{last}"));
    let wide = "é".repeat(MAX_CONTROL_KEY_BYTES / 2);
    words.into_iter().map(str::to_owned).chain(longest).chain([long, wide]).collect()
}

/// Keys are compared byte for byte: each entry is its own.
async fn keys(c: &Context) -> CaseResult {
    let entries = Entries::first(c)?;
    let mut written = Vec::new();
    for text in alike() {
        let name = key(&text)?;
        entries.lacks(Clause::EntryKept, &name, "nobody wrote it").await?;
        let change = put(&name, Expect::Absent);
        entries.done(std::slice::from_ref(&change)).await?;
        written.push(change);
    }
    for change in &written {
        entries.has(Clause::EntryKept, change).await?;
    }
    let listed = keys_of(&entries.pages("", 100).await?);
    c.equal(Clause::EntryKept, &[], "how many are listed:", &written.len(), &listed.len())?;
    while let Some(change) = written.pop() {
        entries.done(&[Change::delete(change.key().clone(), after(&change))]).await?;
        entries.lacks(Clause::EntryKept, change.key(), "it was deleted").await?;
        if let Some(next) = written.last() {
            entries.has(Clause::EntryKept, next).await?;
        }
    }
    Ok(())
}

/// Many keys are found in the order in which they are requested; missing ones are returned as none, and one
/// that is requested twice is returned twice.
async fn many_keys(c: &Context) -> CaseResult {
    let (entries, mut names) = (Entries::first(c)?, numbered("", MAX_CONTROL_CHANGES / 2)?);
    let written: Vec<_> = names.iter().step_by(2).map(|name| put(name, Expect::Absent)).collect();
    entries.done(&written).await?;
    names.reverse();
    names.rotate_left(7);
    names.extend_from_within(..);
    let found = entries.get(&names).await?.value;
    for (name, found) in names.iter().zip(&found) {
        match written.iter().find(|change| change.key() == name) {
            Some(change) => entries.same(Clause::EntryKept, "found among many", change, found.as_ref())?,
            None => c.check(Clause::EntryKept, &[], found.is_none(), "none", format!("{found:?}"))?,
        }
    }
    Ok(())
}

/// A call with as many changes, and one with as many bytes, as there can be.
async fn large_calls(c: &Context) -> CaseResult {
    let (entries, names) = (Entries::first(c)?, numbered("many/", MAX_CONTROL_CHANGES)?);
    let many: Vec<_> = names.iter().map(|name| put(name, Expect::Absent)).collect();
    entries.done(&many).await?;
    entries.lists("many/", 100, &names).await?;
    for (written, found) in many.iter().zip(entries.get(&names).await?.value) {
        entries.same(Clause::EntryKept, "found", written, found.as_ref())?;
    }
    let large = numbered("large/", MAX_CONTROL_CALL_BYTES / MAX_CONTROL_VALUE_BYTES)?;
    let values = large.iter().map(|name| {
        let text = name.as_str().bytes().cycle();
        text.take(MAX_CONTROL_VALUE_BYTES - name.as_str().len()).collect::<Vec<_>>()
    });
    let heavy: Vec<_> = large
        .iter()
        .zip(values)
        .map(|(name, value)| Change::put(name.clone(), Expect::Absent, value))
        .collect();
    entries.done(&heavy).await?;
    for written in &heavy {
        entries.has(Clause::EntryKept, written).await?;
    }
    let all = names.iter().chain(&large).map(|name| Change::delete(name.clone(), Expect::Any));
    for some in all.collect::<Vec<_>>().chunks(MAX_CONTROL_CHANGES) {
        entries.done(some).await?;
    }
    entries.lists("", 100, &[]).await
}
