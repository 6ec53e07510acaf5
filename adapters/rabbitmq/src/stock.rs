//! How much is held ready for pulls to come. What nobody comes for in time is released, for others to take; the server counts that
//! as a delivery, so it must not go on: after each time less is taken, and kept for longer.

use std::time::Duration;

/// How long a message that is held ready waits for the next pull, at first.
const READY: Duration = Duration::from_secs(1);
/// How long at most.
const PATIENCE: Duration = Duration::from_secs(16);

/// See the module.
#[derive(Debug)]
pub(crate) struct Stock {
    /// As much as is allowed.
    most: usize,
    /// As much as the next consumer may be sent.
    credit: usize,
    patience: Duration,
    /// Messages that pulls were given since some were released.
    drawn: usize,
}

impl Stock {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, credit: most, patience: READY, drawn: 0 }
    }

    /// How long what is held ready waits for a pull.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Pulls were given so many.
    pub(crate) fn was_drawn_on(&mut self, messages: usize) {
        self.drawn = self.drawn.saturating_add(messages);
    }

    /// Nobody came for so many.
    pub(crate) fn was_too_large(&mut self, left: usize) {
        if left > 0 {
            self.credit = self.drawn.clamp(1, self.most.max(1));
            self.patience = (self.patience * 2).min(PATIENCE);
        }
        self.drawn = 0;
    }

    /// What the next consumer may be sent: more than the last, as all of that was taken.
    pub(crate) fn next(&mut self) -> usize {
        let credit = self.credit;
        self.credit = (credit * 2).min(self.most);
        if credit == self.most {
            self.patience = READY;
        }
        credit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_makes_it_smaller_and_slower_and_full_flow_makes_it_whole_again() {
        let mut stock = Stock::new(256);
        assert_eq!((stock.next(), stock.next()), (256, 256));
        stock.was_drawn_on(3);
        stock.was_too_large(253);
        assert_eq!((stock.next(), stock.patience()), (3, 2 * READY));
        for _ in 0..9 {
            stock.was_too_large(1);
        }
        assert_eq!((stock.patience(), stock.next()), (PATIENCE, 1));
        let grown: Vec<usize> = (0..9).map(|_| stock.next()).collect();
        assert_eq!(grown, [2, 4, 8, 16, 32, 64, 128, 256, 256]);
        assert_eq!(stock.patience(), READY);
        stock.was_too_large(0);
        assert_eq!(stock.next(), 256);
    }
}
