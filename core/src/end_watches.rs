//! Waiting for the ends of tasks, in this process and in others.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::message::MessageId;

/// How many tasks other processes are known to wait for, and how many news items are kept until they are
/// sent. Ends beyond this are noticed only by looking.
pub(crate) const MAX_WATCHED: usize = 10_000;
/// How long a waiter elsewhere is assumed to wait. One that still waits says so again before that.
const WATCHED_FOR: Duration = Duration::from_mins(1);
/// How often a waiter says again that it still waits.
pub(crate) const SAY_AGAIN: Duration = Duration::from_secs(20);
/// With this many ids a text stays below the 8,000 bytes that a notification of `PostgreSQL` can carry.
const IDS_IN_A_TEXT: usize = 200;
/// The first letters of texts: "these tasks have ended", and "somebody waits for the end of these".
const ENDED: &str = "e ";
const WATCHED: &str = "w ";

/// The waiters for the ends of tasks: those in this process are woken, and those in other processes are
/// notified by the adapter.
///
/// For adapters whose server can notify other processes, without a promise that the notification arrives.
/// Waiters also look now and then, so a lost notification costs only time. Nothing is sent unless somebody
/// waits: a handle announces which tasks it [waits](Self::watch) for, and a handle that [ends](Self::ended)
/// such a task announces that. [`news`](Self::news) returns the texts to publish; pass the texts of other
/// handles to [`hear`](Self::hear).
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use anyqueue::MessageId;
/// use anyqueue::adapter::EndWatches;
///
/// // Two handles; the adapter carries the texts between them.
/// let (waits, works) = (Arc::new(EndWatches::default()), EndWatches::default());
/// let id = MessageId::new();
/// let watch = waits.watch(id);
/// assert!(waits.news().await.iter().all(|text| works.hear(text)));
/// works.ended(&[id]);
/// assert!(works.news().await.iter().all(|text| waits.hear(text)));
/// watch.ended().await;
/// # });
/// ```
pub struct EndWatches {
    /// Whether other processes are notified.
    has_others: bool,
    // A std mutex: it is held for a few instructions and never across an await.
    watched: Mutex<Watched>,
    /// Whether anybody waits, here or elsewhere: an end that nobody waits for costs no more than reading
    /// this.
    is_watched: AtomicBool,
    has_news: Notify,
}

#[derive(Default)]
struct Watched {
    here: HashMap<MessageId, Vec<Arc<Bell>>>,
    /// Until when somebody elsewhere is assumed to wait for each.
    elsewhere: HashMap<MessageId, Instant>,
    news: News,
}

/// What to tell other processes.
#[derive(Default)]
struct News {
    watched: Vec<MessageId>,
    ended: Vec<MessageId>,
}

/// Rings once for all ends since it was last heard.
#[derive(Default)]
struct Bell {
    has_rung: AtomicBool,
    notify: Notify,
}

impl Bell {
    fn ring(&self) {
        self.has_rung.store(true, Ordering::Release);
        self.notify.notify_one();
    }
}

impl fmt::Debug for EndWatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched = self.watched();
        f.debug_struct("EndWatches")
            .field("here", &watched.here.len())
            .field("elsewhere", &watched.elsewhere.len())
            .finish_non_exhaustive()
    }
}

impl Default for EndWatches {
    /// Creates watches without waiters. Other processes are to be told the [`news`](Self::news).
    fn default() -> Self {
        Self {
            has_others: true,
            watched: Mutex::default(),
            is_watched: AtomicBool::new(false),
            has_news: Notify::new(),
        }
    }
}

impl EndWatches {
    /// Creates watches for when all waiters are in this process: there are never any [`news`](Self::news).
    #[must_use]
    pub fn within_process() -> Self {
        Self { has_others: false, ..Self::default() }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to wait for the end of this task. Call this before looking whether it has ended.
    #[must_use = "dropped, it waits no more"]
    pub fn watch(self: &Arc<Self>, id: MessageId) -> EndWatch {
        let bell = Arc::new(Bell::default());
        let mut watched = self.watched();
        watched.here.entry(id).or_default().push(Arc::clone(&bell));
        if self.has_others && watched.news.watched.len() < MAX_WATCHED {
            watched.news.watched.push(id);
        }
        self.is_watched.store(true, Ordering::Release);
        drop(watched);
        self.has_news.notify_one();
        EndWatch { watching: Some(Watching { watches: Arc::clone(self), id, bell }) }
    }

    /// Notes that these tasks have ended by a call of this handle: wakes those who wait for them here, and
    /// prepares news for those who wait elsewhere.
    pub fn ended(&self, ids: &[MessageId]) {
        if !self.is_watched.load(Ordering::Acquire) {
            return;
        }
        let mut watched = self.watched();
        for id in ids {
            watched.ring(*id);
            let is_awaited = watched.elsewhere.remove(id).is_some_and(|until| Instant::now() < until);
            if is_awaited && watched.news.ended.len() < MAX_WATCHED {
                watched.news.ended.push(*id);
            }
        }
        let has_news = !watched.news.ended.is_empty();
        self.is_watched.store(watched.is_anybody_waiting(), Ordering::Release);
        drop(watched);
        if has_news {
            self.has_news.notify_one();
        }
    }

    /// Waits until there is news for other processes, and returns it as texts to publish to all other
    /// handles, each of less than 8,000 ASCII characters. If cancelled while it waits, it has taken nothing.
    pub async fn news(&self) -> Vec<String> {
        loop {
            let News { watched, ended } = std::mem::take(&mut self.watched().news);
            let texts: Vec<_> = texts(ENDED, &ended).chain(texts(WATCHED, &watched)).collect();
            if !texts.is_empty() {
                return texts;
            }
            self.has_news.notified().await;
        }
    }

    /// Handles a text from another handle. Returns `false` for a text of another kind, which it ignores.
    pub fn hear(&self, text: &str) -> bool {
        let ids = |ids: &str| -> Vec<MessageId> {
            ids.split(',').filter_map(|id| id.parse().ok()).take(IDS_IN_A_TEXT).collect()
        };
        if let Some(ended) = text.strip_prefix(ENDED) {
            let mut watched = self.watched();
            for id in ids(ended) {
                watched.ring(id);
                // Waiters elsewhere heard it too.
                watched.elsewhere.remove(&id);
            }
            self.is_watched.store(watched.is_anybody_waiting(), Ordering::Release);
        } else if let Some(awaited) = text.strip_prefix(WATCHED) {
            let now = Instant::now();
            let mut watched = self.watched();
            for id in ids(awaited) {
                watched.note(id, now);
            }
            self.is_watched.store(watched.is_anybody_waiting(), Ordering::Release);
        } else {
            return false;
        }
        true
    }

    /// Wakes all waiters, who then look: for when texts of others may have been missed.
    pub fn missed(&self) {
        self.watched().here.values().flatten().for_each(|bell| bell.ring());
    }
}

impl Watched {
    fn ring(&self, id: MessageId) {
        self.here.get(&id).into_iter().flatten().for_each(|bell| bell.ring());
    }

    /// Notes that somebody elsewhere waits for this task.
    fn note(&mut self, id: MessageId, now: Instant) {
        if self.elsewhere.len() >= MAX_WATCHED && !self.elsewhere.contains_key(&id) {
            self.elsewhere.retain(|_, until| now < *until);
        }
        if self.elsewhere.len() < MAX_WATCHED || self.elsewhere.contains_key(&id) {
            self.elsewhere.insert(id, now + WATCHED_FOR);
        }
    }

    fn is_anybody_waiting(&self) -> bool {
        !self.here.is_empty() || !self.elsewhere.is_empty()
    }
}

/// Returns these ids as texts, each with as many as it can carry.
fn texts<'i>(prefix: &'static str, ids: &'i [MessageId]) -> impl Iterator<Item = String> + use<'i> {
    ids.chunks(IDS_IN_A_TEXT).map(move |ids| {
        let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
        format!("{prefix}{}", ids.join(","))
    })
}

/// A waiter for the end of a task. Dropping it stops waiting.
#[must_use = "dropped, it waits no more"]
pub struct EndWatch {
    watching: Option<Watching>,
}

struct Watching {
    watches: Arc<EndWatches>,
    id: MessageId,
    bell: Arc<Bell>,
}

impl EndWatch {
    /// Creates a watch that never ends: for adapters that cannot notify.
    pub const fn silent() -> Self {
        Self { watching: None }
    }

    /// Ends when the task may have ended since this was last awaited; never, if nobody announces it. This is
    /// no proof: look.
    pub async fn ended(&self) {
        let Some(Watching { bell, .. }) = &self.watching else { return std::future::pending().await };
        while !bell.has_rung.swap(false, Ordering::AcqRel) {
            bell.notify.notified().await;
        }
    }
}

impl fmt::Debug for EndWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.watching.as_ref().map(|watching| watching.id);
        f.debug_struct("EndWatch").field("id", &id).finish_non_exhaustive()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut watched = self.watches.watched();
        if let Some(bells) = watched.here.get_mut(&self.id) {
            bells.retain(|bell| !Arc::ptr_eq(bell, &self.bell));
            if bells.is_empty() {
                watched.here.remove(&self.id);
            }
        }
        self.watches.is_watched.store(watched.is_anybody_waiting(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn has_rung(watch: &EndWatch) -> bool {
        watch.ended().now_or_never().is_some()
    }

    fn news(watches: &EndWatches) -> Vec<String> {
        watches.news().now_or_never().unwrap_or_default()
    }

    #[test]
    fn who_waits_here_is_woken_for_its_own_task_and_once() {
        let watches = Arc::new(EndWatches::default());
        let (one, other) = (MessageId::new(), MessageId::new());
        let (first, second, third) = (watches.watch(one), watches.watch(one), watches.watch(other));
        watches.ended(&[one]);
        assert!(has_rung(&first) && has_rung(&second) && !has_rung(&third));
        assert!(!has_rung(&first), "it has heard it");
        drop(second);
        watches.ended(&[one, other]);
        assert!(has_rung(&first) && has_rung(&third));
        drop((first, third));
        assert!(watches.watched().here.is_empty(), "nothing stays of who has gone");
        assert!(!watches.is_watched.load(Ordering::Acquire));
    }

    #[test]
    fn nothing_is_told_of_ends_for_which_nobody_waits() {
        let (waits, works) = (Arc::new(EndWatches::default()), EndWatches::default());
        let (awaited, other) = (MessageId::new(), MessageId::new());
        works.ended(&[awaited, other]);
        assert!(news(&works).is_empty());
        let watch = waits.watch(awaited);
        for text in news(&waits) {
            assert!(works.hear(&text));
        }
        works.ended(&[other]);
        assert!(news(&works).is_empty());
        works.ended(&[other, awaited]);
        let told = news(&works);
        assert_eq!(told, [format!("e {awaited}")]);
        assert!(told.iter().all(|text| waits.hear(text)));
        assert!(has_rung(&watch));
        works.ended(&[awaited]);
        assert!(news(&works).is_empty(), "told once for each time that somebody said it waits");
    }

    #[test]
    fn what_another_has_ended_is_watched_for_nobody_any_more() {
        let (waits, works) = (Arc::new(EndWatches::default()), EndWatches::default());
        let id = MessageId::new();
        let _watch = waits.watch(id);
        assert!(news(&waits).iter().all(|text| works.hear(text)));
        assert!(works.is_watched.load(Ordering::Acquire));
        assert!(works.hear(&format!("e {id}")));
        assert!(works.watched().elsewhere.is_empty());
        assert!(!works.is_watched.load(Ordering::Acquire), "its ends cost nothing again");
    }

    #[test]
    fn what_was_missed_wakes_everybody() {
        let watches = Arc::new(EndWatches::default());
        let watch = watches.watch(MessageId::new());
        watches.missed();
        assert!(has_rung(&watch));
    }

    #[test]
    fn texts_stay_below_eight_thousand_bytes_and_carry_every_id() {
        let (waits, works) = (Arc::new(EndWatches::default()), EndWatches::default());
        let watching: Vec<_> = (0..450).map(|_| waits.watch(MessageId::new())).collect();
        let texts = news(&waits);
        assert_eq!(texts.len(), 3);
        for text in &texts {
            assert!(text.len() < 7_900, "{}", text.len());
            works.hear(text);
        }
        assert_eq!(works.watched().elsewhere.len(), watching.len());
    }

    #[test]
    fn no_more_is_kept_of_others_than_the_bound() {
        let works = EndWatches::default();
        let now = Instant::now();
        let mut watched = works.watched();
        for _ in 0..MAX_WATCHED {
            watched.note(MessageId::new(), now);
        }
        let late = MessageId::new();
        watched.note(late, now);
        assert!(!watched.elsewhere.contains_key(&late));
        watched.note(late, now + WATCHED_FOR);
        assert_eq!(watched.elsewhere.len(), 1, "those who have not said it again made room");
    }

    #[test]
    fn what_is_no_news_of_ends_is_left_alone() {
        let watches = EndWatches::default();
        for text in ["", "1 2 - mail", "l mail 3 -1", "e", "x 1"] {
            assert!(!watches.hear(text), "{text}");
        }
        assert!(watches.hear("e who,knows") && watches.hear("w "));
        assert!(watches.watched().elsewhere.is_empty());
    }
}
