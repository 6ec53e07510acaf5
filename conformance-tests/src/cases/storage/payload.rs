//! Payload and headers come back byte for byte. The account compares them on every delivery; these cases choose the bytes.

use std::time::Duration;

use anyqueue::adapter::{Action, PullRequest};
use anyqueue::{ErrorKind, Headers, MessageData, MessageId, RetryClass};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::{MAX_TRIED_BYTES, Need};
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "payload.every_byte", [ContentIntact], every_byte).kills(&[
        Fault::CutAtNul,
        Fault::LossyUtf8,
        Fault::Row129Unleased,
    ]),
    case!(Storage, "payload.edges", [ContentIntact], edges).kills(&[Fault::Trimmed, Fault::DropsEmpty]),
    case!(Storage, "payload.unicode_as_it_is", [ContentIntact], unicode_as_it_is).kills(&[Fault::CutAtNul]),
    case!(Storage, "payload.sizes", [ContentIntact, Limits], sizes).kills(&[Fault::CutAt64KiB]),
    case!(Storage, "payload.exact_limit", [Limits], exact_limit).kills(&[Fault::CutAt64KiB]).deadline(LARGE),
    case!(Storage, "payload.over_the_limit", [PushErrors, Limits], over_the_limit)
        .needs(&[Need::ModestMessageLimit])
        .kills(&[Fault::TooLargeIsSafe])
        .deadline(LARGE),
    case!(Storage, "payload.headers", [ContentIntact], headers)
        .kills(&[Fault::HeadersLowercased, Fault::EmptyHeaderDropped]),
    case!(Storage, "payload.identity_and_options", [ContentIntact], identity_and_options)
        .kills(&[Fault::HeadersLowercased]),
    case!(Storage, "payload.same_on_every_delivery", [ContentIntact], same_on_every_delivery)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::CutAtNul, Fault::HeadersLowercased, Fault::HeaderTrimmed]),
    case!(Storage, "payload.foreign", [ContentIntact, KeptBeforeConsumers], foreign)
        .needs(&[Need::Foreign])
        .kills(&[Fault::ForeignDropped]),
    case!(Storage, "payload.first_envelope", [ContentIntact], first_envelope)
        .needs(&[Need::Foreign])
        .kills(&[Fault::OldEnvelopeForeign]),
];

/// A message as the first release stored it: its id counts from 0 to 15, its payload is `first`.
const FIRST_ENVELOPE: &[u8] = include_bytes!("../../../fixtures/envelope-1.bin");

const LARGE: Duration = Duration::from_mins(1);

/// Pushes messages with these payloads (each into its own partition, so that a lost empty one is noticed) and
/// takes them back.
async fn round_trip(c: &Context, payloads: Vec<Vec<u8>>) -> CaseResult {
    let p = c.partition("work")?;
    let messages: Vec<_> = payloads.into_iter().map(MessageData::from_bytes).collect();
    let limit = c.capabilities().limits.message_bytes;
    let fits = |message: &MessageData| c.client().storage().encoded_len(message) <= limit;
    let messages: Vec<_> = messages.into_iter().filter(fits).collect();
    let sent = c.client().push(&p, &messages).await?;
    let got = c.client().take(&p, sent.len()).await?;
    c.same(Clause::ContentIntact, "all of them", &sent, &got)?;
    for (message, delivery) in messages.iter().filter_map(|message| {
        got.iter().find(|delivery| delivery.lease.id == message.id()).map(|delivery| (message, delivery))
    }) {
        let same = message.payload() == delivery.message.payload();
        let seen = format!("{} bytes, {same}", delivery.message.payload().len());
        let expected = format!("the {} bytes that were pushed", message.payload().len());
        c.check(Clause::ContentIntact, &[message.id()], same, expected, seen)?;
    }
    c.client().remove(&got).await
}

async fn every_byte(c: &Context) -> CaseResult {
    let every: Vec<u8> = (0..=255).collect();
    let mut payloads: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
    payloads.extend([
        every.clone(),
        every.iter().rev().copied().collect(),
        b"a\0b".to_vec(),
        b"\0".repeat(3),
    ]);
    payloads.extend([&b"\xff\xfe\xfd"[..], b"\xc3\x28", b"\xed\xa0\x80", b"ok\x80"].map(<[u8]>::to_vec));
    round_trip(c, payloads).await
}

/// Nothing at all; and white space, line ends and special characters at the edges.
async fn edges(c: &Context) -> CaseResult {
    let texts = [
        "",
        " ",
        " a ",
        "\ta\t",
        "\na\n",
        "a\r\n",
        "\r\n",
        "\u{feff}a",
        "\"a\"",
        "null",
        "{}",
        "'; --",
        "%s%n",
        "a\\0",
    ];
    round_trip(c, texts.map(|text| text.as_bytes().to_vec()).to_vec()).await
}

/// Composed and decomposed characters, right-to-left text, and characters outside of the basic plane come
/// back as they are.
async fn unicode_as_it_is(c: &Context) -> CaseResult {
    let texts = ["\u{e9}", "e\u{301}", "שלום", "\u{202e}abc", "🦀🦀", "\u{0}\u{1f600}", "ﬁ", "ß", "İ"];
    round_trip(c, texts.map(|text| text.as_bytes().to_vec()).to_vec()).await
}

/// Sizes around those at which servers and drivers change their behaviour.
async fn sizes(c: &Context) -> CaseResult {
    let around = |size: usize| [size - 1, size, size + 1];
    let sizes = [256, 4096, 64 << 10, 256 << 10].into_iter().flat_map(around).chain([1 << 20]);
    let mut random = c.random();
    let payload = |size| {
        let mut bytes = vec![0; size];
        random.fill(&mut bytes);
        bytes
    };
    round_trip(c, sizes.map(payload).collect()).await
}

/// A message of exactly the declared limit is accepted, and comes back whole.
async fn exact_limit(c: &Context) -> CaseResult {
    let message = largest_message(c);
    round_trip(c, vec![message.payload().to_vec()]).await
}

/// One byte more than the declared limit. Core stops it; an adapter that receives it nevertheless returns
/// that it is too large, which repeating cannot help, or stores it.
async fn over_the_limit(c: &Context) -> CaseResult {
    let mut bytes = largest_message(c).payload().to_vec();
    let p = c.partition("work")?;
    bytes.push(b'x');
    // A history would hash the megabytes again and again, and hold up concurrent cases.
    let storage = c.unseen().await?;
    let answers = storage.push(&p, &[MessageData::from_bytes(bytes)]).await;
    let answer = answers.into_iter().next();
    let right = match &answer {
        Some(Err(error)) => error.kind() == ErrorKind::TooLarge && error.retry() == RetryClass::Never,
        Some(Ok(_)) => true,
        None => false,
    };
    c.check(Clause::PushErrors, &[], right, "TooLarge, which repeating never helps", format!("{answer:?}"))?;
    let request = PullRequest::new(1, c.timing().slack, c.timing().long_lease);
    let got = c.ok(Clause::PullBounds, "a pull", storage.pull(&p, request).await)?;
    let rest: Vec<_> = got.iter().map(|held| crate::context::settlement(held, Action::Remove)).collect();
    storage.settle(&rest).await;
    c.ok(Clause::Close, "close", storage.close().await)
}

/// Returns a message of exactly the declared limit, or of the largest size that is tested.
pub(super) fn largest_message(c: &Context) -> MessageData {
    let limit = c.capabilities().limits.message_bytes.min(MAX_TRIED_BYTES);
    let of_size = |bytes: u64| MessageData::from_bytes(pattern(usize::try_from(bytes).unwrap_or_default()));
    let excess = |message: &MessageData| c.client().storage().encoded_len(message).saturating_sub(limit);
    let mut bytes = limit;
    let mut message = of_size(bytes);
    // Each step removes the excess, so this ends after one or two.
    while excess(&message) > 0 && bytes > 0 {
        bytes = bytes.saturating_sub(excess(&message));
        message = of_size(bytes);
    }
    message
}

/// Returns this many bytes, of all values. They are copied in blocks: one by one, megabytes would hold up
/// concurrent cases.
fn pattern(bytes: usize) -> Vec<u8> {
    let block: Vec<u8> = (0..=250).collect();
    let mut pattern = block.repeat(bytes / block.len() + 1);
    pattern.truncate(bytes);
    pattern
}

async fn headers(c: &Context) -> CaseResult {
    let mut many: Headers =
        (0..50).map(|index| (format!("name-{index}"), format!("value {index}"))).collect();
    many.insert("Mixed-Case".to_owned(), " Kept As It Is ".to_owned());
    many.insert("mixed-case".to_owned(), "another".to_owned());
    many.insert("empty".to_owned(), String::new());
    many.insert(String::from("größe 🦀"), "ünïcödé\n\t\"quoted\" \\ '".to_owned());
    many.insert("e\u{301}".to_owned(), "\u{e9}".to_owned());
    let p = c.partition("work")?;
    c.client().push(&p, &[c.message().with_headers(many.clone())]).await?;
    let [got] = c.client().take_exact(&p).await?;
    c.equal(Clause::ContentIntact, &[got.lease.id], "the headers", &many, got.message.headers())?;
    c.client().remove(&[got]).await
}

/// Ids, options and headers of a full message, as the account compares them.
async fn identity_and_options(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let declared = c.capabilities();
    let mut message = c
        .message()
        .with_task_id("Task 1 / größe")
        .with_session_id("Session\n1")
        .with_header("Content-Type", "text/plain")
        .with_time_to_live(Duration::from_hours(1))
        .with_max_retries(7)
        .with_max_duration(Duration::from_millis(1500));
    if declared.priority_levels > 1 {
        message = message.with_priority(declared.priority_levels - 1);
    }
    if declared.groups {
        message = message.with_group("Group 1 / größe");
    }
    if Need::Dedup.is_declared(declared) {
        message = message.with_dedup_key("Key 1 / größe");
    }
    c.client().push(&p, std::slice::from_ref(&message)).await?;
    let [got] = c.client().take_exact(&p).await?;
    c.equal(Clause::ContentIntact, &[message.id()], "the message", &message, &got.message)?;
    c.client().remove(&[got]).await
}

/// Through failure, expiry, postponement, death and redrive: the bytes are the same each time.
async fn same_on_every_delivery(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let message = MessageData::new(b"\0 bytes \xff\0").with_header("Name", " value ").with_task_id("task");
    c.client().push(&p, std::slice::from_ref(&message)).await?;
    let delay = Duration::ZERO;
    let mut at = p.clone();
    for action in [
        Some(Action::Retry),
        None, // the lease ends
        Some(Action::Release),
        Some(Action::Postpone { delay, headers: None }),
        Some(Action::Move { to: p.dead_letters(), headers: None }),
        Some(Action::Move { to: p.clone(), headers: None }),
        Some(Action::Remove),
    ] {
        let lease = if action.is_none() { c.timing().lease } else { c.timing().long_lease };
        let request = PullRequest::new(1, c.timing().latest(c.timing().lease), lease);
        let got = c.client().pull_with(&at, request).await?;
        for delivery in &got {
            c.equal(Clause::ContentIntact, &[message.id()], "the message", &message, &delivery.message)?;
        }
        c.in_order(Clause::ContentIntact, "the message", &[message.id()], &got)?;
        if let Some(action) = action {
            c.client().settle_all(&got, &action).await?;
            if let Action::Move { to, .. } = action {
                at = to;
            }
        }
    }
    Ok(())
}

/// A message of another program is delivered with its bytes as they are, again after its release, and gone
/// once it is removed.
async fn foreign(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let bytes = b"{\"not\": \"an envelope\"}\xFF\x00";
    let planted = c.plant(&p, bytes).await?;
    let [held] = c.client().take_exact(&p).await?;
    c.planted(planted, &held.message);
    c.equal(Clause::ContentIntact, &[held.lease.id], "the payload", &&bytes[..], &held.message.payload())?;
    c.client().settle_all(std::slice::from_ref(&held), &Action::Release).await?;
    let [again] = c.client().take_exact(&p).await?;
    c.equal(
        Clause::ContentIntact,
        &[held.lease.id],
        "the id at the second delivery",
        &held.lease.id,
        &again.lease.id,
    )?;
    c.client().remove(&[again]).await?;
    c.client()
        .nothing(&p, c.timing().slack, Clause::SettleActions, "a removed foreign message to be gone")
        .await
}

/// A message that the first release stored is still the same message.
async fn first_envelope(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let planted = c.plant(&p, FIRST_ENVELOPE).await?;
    let [held] = c.client().take_exact(&p).await?;
    c.planted(planted, &held.message);
    let id = MessageId::from_bytes(std::array::from_fn(|byte| u8::try_from(byte).unwrap_or(0)));
    c.equal(Clause::ContentIntact, &[held.lease.id], "the id", &id, &held.lease.id)?;
    c.equal(Clause::ContentIntact, &[held.lease.id], "the payload", &&b"first"[..], &held.message.payload())?;
    c.client().remove(&[held]).await
}
