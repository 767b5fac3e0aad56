//! QueueStream that were taken on trial.

use std::collections::HashMap;

use crate::mesh::PeerId;
use crate::queue::blocks::Block;

/// QueueStream that are to be acknowledged, and go to others if they are not.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    taken: HashMap<u64, (PeerId, Block)>,
    last: u64,
}

impl Deliveries {
    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Somebody takes an element; the delivery's number.
    pub(super) fn begin(&mut self, taker: PeerId, block: Block) -> u64 {
        self.last += 1;
        self.taken.insert(self.last, (taker, block));
        self.last
    }

    /// The element of a delivery that is over, acknowledged or not; none if it was before.
    pub(super) fn end(&mut self, delivery: u64) -> Option<Block> {
        self.taken.remove(&delivery).map(|(_, block)| block)
    }

    /// What a process that is gone had taken and not acknowledged.
    pub(super) fn lost(&mut self, peer: PeerId) -> impl Iterator<Item = Block> {
        self.taken.extract_if(move |_, (taker, _)| *taker == peer).map(|(_, (_, block))| block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lost_process_had_not_acknowledged_comes_back_and_nothing_else() {
        let mut deliveries = Deliveries::default();
        let [first, second, other] = [PeerId::ANOTHER, PeerId::ANOTHER, PeerId::HERE]
            .map(|taker| deliveries.begin(taker, Block::of(b"element")));
        assert!(deliveries.end(first).is_some());
        assert!(deliveries.end(first).is_none(), "it is over");
        assert_eq!(deliveries.lost(PeerId::ANOTHER).count(), 1);
        assert!(deliveries.end(second).is_none(), "it is back");
        assert!(deliveries.end(other).is_some() && deliveries.is_empty());
    }
}
