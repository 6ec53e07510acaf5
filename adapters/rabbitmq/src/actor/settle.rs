//! How a partition's task settles the deliveries that are held.

use anyqueue::{MessageId, Result};

use super::Actor;
use crate::command::{Disposition, Ending, Settled};
use crate::consumer_channel::Received;
use crate::token::Tag;

impl Actor {
    /// Whether the delivery is of this channel, and is held or kept.
    pub(super) fn owns(&self, id: MessageId, tag: Tag) -> bool {
        let is_it = |kept: &Received| kept.record.message.id() == id;
        self.holds(id, tag) || self.is_of_channel(tag) && self.kept.get(&tag.delivery_tag).is_some_and(is_it)
    }

    /// Whether the delivery is held, and is not being settled.
    fn holds(&self, id: MessageId, tag: Tag) -> bool {
        self.channel.as_ref().is_some_and(|channel| {
            let held = channel.held.get(&tag.delivery_tag);
            channel.id == tag.channel_id && held.is_some_and(|held| held.record.message.id() == id)
        })
    }

    fn is_of_channel(&self, tag: Tag) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.id == tag.channel_id)
    }

    pub(super) fn settle(&mut self, items: Vec<(MessageId, Tag, Disposition)>) -> Vec<Settled> {
        let mut returned = Vec::new();
        let mut answers = Vec::with_capacity(items.len());
        for (id, tag, disposition) in items {
            let held = self.holds(id, tag);
            let channel = self.channel.as_mut().filter(|_| held);
            let Some((channel, received)) = channel
                .and_then(|channel| channel.held.remove(&tag.delivery_tag).map(|held| (channel, held)))
            else {
                answers.push(Settled::Lost);
                continue;
            };
            answers.push(match disposition {
                Disposition::Ack => {
                    channel.forget_unseen(id);
                    channel.ack_later(tag.delivery_tag);
                    Settled::Done
                }
                Disposition::Requeue => {
                    returned.push(received);
                    Settled::Done
                }
                Disposition::Keep | Disposition::Copy => {
                    let is_copied = matches!(disposition, Disposition::Copy);
                    let original = is_copied.then(|| Box::new(received.record.clone()));
                    self.kept.insert(tag.delivery_tag, received);
                    Settled::Kept(tag, original)
                }
            });
        }
        if let Some(channel) = &mut self.channel
            && !returned.is_empty()
            && let Err(error) = channel.requeue(returned)
        {
            self.channel_lost(&error);
        }
        answers
    }

    /// Holds deliveries again because the caller is gone, so that nobody publishes what their settlements
    /// would store.
    pub(super) fn hold_again(&mut self, answers: Vec<Settled>) {
        for answer in answers {
            if let Settled::Kept(tag, _) = answer {
                self.end(tag, Ending::Hold);
            }
        }
    }

    /// Ends a delivery that was kept. Returns whether it was still held.
    pub(super) fn end(&mut self, tag: Tag, ending: Ending) -> bool {
        let Some(channel) = self.channel.as_mut().filter(|channel| channel.id == tag.channel_id) else {
            return false;
        };
        let Some(kept) = self.kept.remove(&tag.delivery_tag) else { return false };
        match ending {
            Ending::Ack => {
                channel.forget_unseen(kept.record.message.id());
                channel.ack_later(tag.delivery_tag);
            }
            Ending::Requeue => {
                if let Err(error) = channel.requeue(vec![kept]) {
                    self.channel_lost(&error);
                    return false;
                }
            }
            Ending::Hold => drop(channel.held.insert(tag.delivery_tag, kept)),
        }
        true
    }

    pub(super) fn requeue_unclaimed(&mut self, tags: &[Tag]) -> Result<()> {
        let Some(channel) = &mut self.channel else { return Ok(()) };
        let mine = tags.iter().filter(|tag| tag.channel_id == channel.id);
        let back: Vec<Received> = mine.filter_map(|tag| channel.held.remove(&tag.delivery_tag)).collect();
        channel.requeue_unseen(back)
    }
}
