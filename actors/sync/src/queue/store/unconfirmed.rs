//! The elements of a client that it has not confirmed as used.

use std::collections::VecDeque;

use crate::queue::blocks::Block;

/// Why an element was sent to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SentAs {
    /// The client waited for the element, so it has most likely used it by now.
    Demanded,
    /// The client did not wait for the element, and may return it.
    Prefetched,
}

/// The elements that were sent to one client, in that order, without those that it has confirmed.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    sent: VecDeque<(SentAs, Block)>,
    /// The number of confirmed elements, ever.
    used: u64,
}

impl Unconfirmed {
    /// Adds blocks that are sent to the client.
    pub(super) fn send(&mut self, sent_as: SentAs, blocks: Vec<Block>) {
        self.sent.extend(blocks.into_iter().map(|block| (sent_as, block)));
    }

    /// Confirms the first `used` elements that the client was ever sent. Returns how many of those
    /// that were not confirmed before had been prefetched.
    pub(super) fn used(&mut self, used: u64) -> usize {
        let mut more = usize::try_from(used.saturating_sub(self.used)).unwrap_or(usize::MAX);
        let mut prefetched = 0;
        while more > 0 {
            let Some((sent_as, front)) = self.sent.front_mut() else { break };
            let count = more.min(front.count);
            if *sent_as == SentAs::Prefetched {
                prefetched += count;
            }
            if count == front.count {
                self.sent.pop_front();
            } else {
                front.split(count);
            }
            more -= count;
            self.used += count as u64;
        }
        prefetched
    }

    /// Returns the part of a demand that is not on its way to the client.
    pub(super) fn lacking(&self, demand: usize) -> usize {
        self.sent.iter().fold(demand, |left, (_, block)| left.saturating_sub(block.count))
    }

    /// Returns whether the client may have elements to return.
    pub(super) fn has_prefetched(&self) -> bool {
        self.sent.iter().any(|(sent_as, _)| *sent_as == SentAs::Prefetched)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Removes all elements and returns them.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (SentAs, Block)> {
        std::mem::take(&mut self.sent).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::blocks::Blocks;
    use crate::queue::encoded::Encoded;

    /// Returns a block of `count` elements.
    fn block(count: usize) -> Block {
        let mut blocks = Blocks::default();
        (0..count).for_each(|n| blocks.push(Encoded::new(&n, 100).unwrap()));
        blocks.take(count, usize::MAX).remove(0)
    }

    fn left(unconfirmed: &mut Unconfirmed) -> Vec<(SentAs, usize)> {
        unconfirmed.take_all().map(|(sent_as, block)| (sent_as, block.count)).collect()
    }

    #[test]
    fn elements_are_confirmed_in_the_order_in_which_they_were_sent() {
        let mut unconfirmed = Unconfirmed::default();
        unconfirmed.send(SentAs::Prefetched, vec![block(3)]);
        unconfirmed.send(SentAs::Demanded, vec![block(1)]);
        unconfirmed.send(SentAs::Prefetched, vec![block(2), block(2)]);
        assert_eq!(unconfirmed.used(2), 2);
        assert_eq!(unconfirmed.used(2), 0, "they are confirmed");
        assert_eq!(unconfirmed.used(5), 2, "one of three was demanded");
        assert_eq!(left(&mut unconfirmed), [(SentAs::Prefetched, 1), (SentAs::Prefetched, 2)]);
    }

    #[test]
    fn elements_on_their_way_count_towards_the_demand() {
        let mut unconfirmed = Unconfirmed::default();
        assert_eq!(unconfirmed.lacking(2), 2);
        unconfirmed.send(SentAs::Demanded, vec![block(1)]);
        unconfirmed.send(SentAs::Prefetched, vec![block(3)]);
        assert_eq!((unconfirmed.lacking(4), unconfirmed.lacking(6)), (0, 2));
        unconfirmed.used(3);
        assert_eq!(unconfirmed.lacking(4), 3);
    }

    #[test]
    fn a_client_can_not_confirm_more_than_it_was_sent() {
        let mut unconfirmed = Unconfirmed::default();
        unconfirmed.send(SentAs::Prefetched, vec![block(2)]);
        assert_eq!(unconfirmed.used(u64::MAX), 2);
        assert!(!unconfirmed.has_prefetched());
        unconfirmed.send(SentAs::Demanded, vec![block(1)]);
        assert!(!unconfirmed.has_prefetched());
        assert_eq!((unconfirmed.used(3), left(&mut unconfirmed)), (0, vec![]));
    }
}
