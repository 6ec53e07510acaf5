//! Lists: by prefix, in the order of the keys' bytes, page by page.

use std::collections::HashMap;

use anyqueue::control::{Change, Expect, Key, MAX_CONTROL_KEY_BYTES};
use futures_util::future::{Either, select};

use super::{Entries, NEEDS, key, keys_of, numbered, put};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "control.prefixes", [EntriesListed], prefixes).needs(NEEDS).kills(&[
        Fault::EntryPrefixAsLike,
        Fault::EntryPrefixAsGlob,
        Fault::EntryPrefixTrimmed,
        Fault::EntryPrefixCaseless,
        Fault::EntryPrefixAnywhere,
    ]),
    case!(Storage, "control.byte_order", [EntriesListed], byte_order).needs(NEEDS).kills(&[
        Fault::EntriesUnsorted,
        Fault::EntriesOrderedCaseless,
        Fault::EntriesOrderedUtf16,
    ]),
    case!(Storage, "control.pages", [EntriesListed], pages).needs(NEEDS).kills(&[
        Fault::EntryPagesSkip,
        Fault::EntryPagesRepeat,
        Fault::EntryPagesCut,
        Fault::EntryPagesBeyond,
    ]),
    case!(Storage, "control.pages_after_deleted", [EntriesListed], pages_after_deleted)
        .needs(NEEDS)
        .kills(&[Fault::EntryPagesEndAtDeleted, Fault::EntryPagesSkip]),
    case!(Storage, "control.listed_beside_writes", [EntriesListed], listed_beside_writes)
        .needs(NEEDS)
        .kills(&[Fault::EntryPagesSkip, Fault::EntryPagesRepeat]),
];

/// Keys with characters that are special in patterns, quotes and collations.
const ODD: &[&str] = &[
    "a",
    "a/",
    "a/b",
    "a/b/c",
    "a//",
    "a-b",
    "a.b",
    "ab",
    "A",
    "A/",
    "A/b",
    "a%",
    "a%b",
    "a_",
    "a_b",
    "axb",
    "a\\",
    "a\\b",
    "a\\%",
    "a[",
    "a[b]",
    "a[^b]",
    "{a}",
    "{a}/b",
    "*",
    "*b",
    "?",
    "?b",
    "^a",
    "a$",
    ".*",
    "'",
    "'a",
    "\"",
    "\"a",
    "';--",
    "Z",
    "Z/",
    "z",
    "é",
    "É",
    "é/b",
    "e",
    "e\u{301}",
    "ß",
    "ss",
    "ı",
    "İ",
    " ",
    "a ",
    "a b",
    "-",
    "/",
    "0",
    "9",
    "10",
    "\u{FF5E}",
    "\u{E000}",
    "\u{FFFD}",
    "😀",
    "\u{10FFFF}",
    "\u{10FFFF}b",
    "b\u{10FFFF}",
    "b\u{10FFFF}c",
    "c",
];

/// Writes them in no particular order, and returns them in the order of their bytes.
async fn write_odd(c: &Context, entries: &Entries<'_>) -> CaseResult<Vec<Key>> {
    let long = "l".repeat(MAX_CONTROL_KEY_BYTES);
    let longest = [long.as_str(), long.get(1..).unwrap_or_default()];
    let mut names = ODD.iter().copied().chain(longest).map(key).collect::<CaseResult<Vec<_>>>()?;
    c.random().shuffle(&mut names);
    for some in names.chunks(20) {
        entries.done(&some.iter().map(|name| put(name, Expect::Absent)).collect::<Vec<_>>()).await?;
    }
    names.sort();
    Ok(names)
}

/// A prefix is text, byte for byte: nothing in it is a pattern, and each key that begins with it is listed,
/// including the prefix itself.
async fn prefixes(c: &Context) -> CaseResult {
    let entries = Entries::first(c)?;
    let names = write_odd(c, &entries).await?;
    let more =
        ["", "a/b/c/d", "nothing", "%", "_", "a*", "a?", "\\", "e\u{301}\u{301}", "[a]", "b", "\u{10FFFF}"];
    let prefixes = names.iter().map(Key::as_str).chain(more);
    for prefix in prefixes {
        let expected: Vec<_> =
            names.iter().filter(|name| name.as_str().starts_with(prefix)).cloned().collect();
        entries.lists(prefix, 100, &expected).await?;
    }
    Ok(())
}

/// The order is that of the bytes: not that of a language, and not that of numbers.
async fn byte_order(c: &Context) -> CaseResult {
    let entries = Entries::first(c)?;
    let names = write_odd(c, &entries).await?;
    for limit in [1, 7, 100] {
        entries.lists("", limit, &names).await?;
    }
    for (index, name) in names.iter().enumerate() {
        let page = entries.page("", 2, Some(name.clone())).await?.value;
        let expected: Vec<_> = names.iter().skip(index + 1).take(2).cloned().collect();
        c.equal(Clause::EntriesListed, &[], &format!("after {name}:"), &expected, &keys_of(&page))?;
    }
    Ok(())
}

/// Pages of every size have each entry once. A page with fewer than requested is the last, and none has more.
async fn pages(c: &Context) -> CaseResult {
    let (entries, n) = (Entries::first(c)?, 24);
    let names = numbered("page/", n)?;
    entries.lists("page/", 1, &[]).await?;
    let around =
        ["page", "page.", "page0", "pagf/0001"].map(key).into_iter().collect::<CaseResult<Vec<_>>>()?;
    let written: Vec<_> = names.iter().chain(&around).map(|name| put(name, Expect::Absent)).collect();
    entries.done(&written).await?;
    for limit in [1, 2, 5, n / 2, n - 1, n, n + 1, 100] {
        entries.lists("page/", limit, &names).await?;
        let first = entries.page("page/", limit, None).await?.value;
        c.equal(Clause::EntriesListed, &[], "how many are on a page:", &limit.min(n), &first.len())?;
    }
    for (after, expected) in
        [("a", n), ("page", n), ("page/", n), ("page0", 0), ("z", 0), ("page/0004", n - 5)]
    {
        let page = entries.page_from("page/", after).await?;
        c.equal(Clause::EntriesListed, &[], &format!("how many are after {after:?}:"), &expected, &page)?;
    }
    Ok(())
}

impl Entries<'_> {
    /// Returns how many keys with the prefix there are after a key, which need not be one of them.
    async fn page_from(&self, prefix: &str, after: &str) -> CaseResult<usize> {
        Ok(self.page(prefix, 100, Some(key(after)?)).await?.value.len())
    }
}

/// A page continues after its key, even if that was deleted meanwhile, or was never there.
async fn pages_after_deleted(c: &Context) -> CaseResult {
    let (entries, mut names) = (Entries::first(c)?, numbered("page/", 20)?);
    entries.done(&names.iter().map(|name| put(name, Expect::Absent)).collect::<Vec<_>>()).await?;
    while names.len() > 2 {
        let page = keys_of(&entries.page("page/", 2, None).await?.value);
        let expected: Vec<_> = names.iter().take(2).cloned().collect();
        c.equal(Clause::EntriesListed, &[], "the first page:", &expected, &page)?;
        let Some(last) = page.last().cloned() else { break };
        entries.done(&[Change::delete(last.clone(), Expect::Any)]).await?;
        names.retain(|name| *name != last);
        let rest = keys_of(&entries.page("page/", 100, Some(last.clone())).await?.value);
        let expected: Vec<_> = names.iter().filter(|name| **name > last).cloned().collect();
        c.equal(Clause::EntriesListed, &[], "after a deleted key:", &expected, &rest)?;
    }
    let never = key("page/0000/never")?;
    let rest = entries.page("page/", 100, Some(never)).await?.value.len();
    let first = usize::from(names.first().is_some_and(|name| name.as_str() == "page/0000"));
    c.equal(Clause::EntriesListed, &[], "after a key that was never there:", &(names.len() - first), &rest)
}

/// Entries that stay while others come and go are listed exactly once.
async fn listed_beside_writes(c: &Context) -> CaseResult {
    let (entries, other) = (Entries::first(c)?, c.fresh().await?);
    let stable: Vec<_> = numbered("busy/", 40)?.into_iter().step_by(2).collect();
    entries.done(&stable.iter().map(|name| put(name, Expect::Absent)).collect::<Vec<_>>()).await?;
    let writing = async {
        let (entries, mut random) = (Entries::of(c, &other)?, c.random());
        let passing: Vec<_> = numbered("busy/", 40)?.into_iter().skip(1).step_by(2).collect();
        loop {
            let which = random.usize(..passing.len());
            for name in passing.iter().skip(which).take(3) {
                let delete = Change::delete(name.clone(), Expect::Any);
                let overwrite = random.choice(&stable).map(|stays| put(stays, Expect::Any));
                let change = if random.bool() { put(name, Expect::Any) } else { delete };
                entries.done(&overwrite.into_iter().chain([change]).collect::<Vec<_>>()).await?;
            }
            tokio::task::yield_now().await;
        }
    };
    let listing = async {
        for round in 0..c.size(20, 200) {
            let listed = keys_of(&entries.pages("busy/", 1 + round % 9).await?);
            let mut times: HashMap<&Key, usize> = HashMap::new();
            for name in &listed {
                *times.entry(name).or_default() += 1;
            }
            for name in &stable {
                let seen = times.get(name).copied().unwrap_or(0);
                c.equal(Clause::EntriesListed, &[], &format!("how often {name} is listed:"), &1, &seen)?;
            }
        }
        Ok(())
    };
    match select(Box::pin(writing), Box::pin(listing)).await {
        Either::Left((written, _)) => {
            let never: CaseResult<std::convert::Infallible> = written;
            never.map(|never| match never {})
        }
        Either::Right((listed, _)) => listed,
    }
}
