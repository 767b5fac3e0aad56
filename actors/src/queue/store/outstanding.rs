//! What a client was sent and has not said that it used.

use std::collections::VecDeque;

use crate::queue::blocks::Block;

/// On what terms a client has an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terms {
    /// It waited for it, so it has most likely used it by now.
    Given,
    /// Nobody waited for it: it is to be used, or given back.
    Lent,
}

/// What one client was sent, in that order, without what it is known to have used.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    sent: VecDeque<(Terms, Block)>,
    /// How many of all that it was ever sent are known to be used.
    used: u64,
}

impl Outstanding {
    /// It is sent these too.
    pub(super) fn send(&mut self, terms: Terms, blocks: Vec<Block>) {
        self.sent.extend(blocks.into_iter().map(|block| (terms, block)));
    }

    /// So many of all that it was ever sent are used. Says how many had been lent, of those of
    /// which that was not known.
    pub(super) fn used(&mut self, used: u64) -> usize {
        let mut more = usize::try_from(used.saturating_sub(self.used)).unwrap_or(usize::MAX);
        let mut lent = 0;
        while more > 0 {
            let Some((terms, front)) = self.sent.front_mut() else { break };
            let count = more.min(front.count);
            if *terms == Terms::Lent {
                lent += count;
            }
            if count == front.count {
                self.sent.pop_front();
            } else {
                front.split(count);
            }
            more -= count;
            self.used += count as u64;
        }
        lent
    }

    /// How many of so many that it waits for are not on their way to it.
    pub(super) fn lacking(&self, demand: usize) -> usize {
        self.sent.iter().fold(demand, |left, (_, block)| left.saturating_sub(block.count))
    }

    /// Whether something can be asked back.
    pub(super) fn has_lent(&self) -> bool {
        self.sent.iter().any(|(terms, _)| *terms == Terms::Lent)
    }

    /// It has none of it any more.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (Terms, Block)> {
        std::mem::take(&mut self.sent).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::blocks::{Blocks, Encoded};

    /// A block of so many elements.
    fn block(count: usize) -> Block {
        let mut blocks = Blocks::default();
        (0..count).for_each(|n| blocks.push(Encoded::new(&n, 100).unwrap()));
        blocks.take(count, usize::MAX).remove(0)
    }

    fn left(outstanding: &mut Outstanding) -> Vec<(Terms, usize)> {
        outstanding.take_all().map(|(terms, block)| (terms, block.count)).collect()
    }

    #[test]
    fn elements_are_used_in_the_order_in_which_they_were_sent() {
        let mut outstanding = Outstanding::default();
        outstanding.send(Terms::Lent, vec![block(3)]);
        outstanding.send(Terms::Given, vec![block(1)]);
        outstanding.send(Terms::Lent, vec![block(2), block(2)]);
        assert_eq!(outstanding.used(2), 2);
        assert_eq!(outstanding.used(2), 0, "it was known");
        assert_eq!(outstanding.used(5), 2, "one of three had been given");
        assert_eq!(left(&mut outstanding), [(Terms::Lent, 1), (Terms::Lent, 2)]);
    }

    #[test]
    fn what_is_on_its_way_need_not_be_sent_again() {
        let mut outstanding = Outstanding::default();
        assert_eq!(outstanding.lacking(2), 2);
        outstanding.send(Terms::Given, vec![block(1)]);
        outstanding.send(Terms::Lent, vec![block(3)]);
        assert_eq!((outstanding.lacking(4), outstanding.lacking(6)), (0, 2));
        outstanding.used(3);
        assert_eq!(outstanding.lacking(4), 3);
    }

    #[test]
    fn who_says_to_have_used_more_than_it_was_sent_has_used_no_more_than_that() {
        let mut outstanding = Outstanding::default();
        outstanding.send(Terms::Lent, vec![block(2)]);
        assert_eq!(outstanding.used(u64::MAX), 2);
        assert!(!outstanding.has_lent());
        outstanding.send(Terms::Given, vec![block(1)]);
        assert!(!outstanding.has_lent());
        assert_eq!((outstanding.used(3), left(&mut outstanding)), (0, vec![]));
    }
}
