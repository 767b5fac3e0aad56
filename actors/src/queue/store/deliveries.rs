//! Elements that consumers have to acknowledge.

use std::collections::HashMap;

use crate::mesh::PeerId;
use crate::queue::blocks::Block;

/// Delivered elements without an acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    taken: HashMap<u64, (PeerId, Block)>,
    last: u64,
}

impl Deliveries {
    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Adds a delivery. Returns its number.
    pub(super) fn begin(&mut self, consumer: PeerId, block: Block) -> u64 {
        self.last += 1;
        self.taken.insert(self.last, (consumer, block));
        self.last
    }

    /// Removes a delivery, acknowledged or not. Returns its element, or `None` if it was removed
    /// before.
    pub(super) fn end(&mut self, delivery: u64) -> Option<Block> {
        self.taken.remove(&delivery).map(|(_, block)| block)
    }

    /// Removes the deliveries of a process that is gone. Returns their elements.
    pub(super) fn peer_lost(&mut self, peer: PeerId) -> impl Iterator<Item = Block> {
        self.taken
            .extract_if(move |_, (consumer, _)| *consumer == peer)
            .map(|(_, (_, block))| block)
    }
}

#[cfg(test)]
mod tests {
    use fiber_core::codec::EncodedValue;

    use super::*;

    #[test]
    fn a_lost_process_returns_the_elements_that_it_has_not_acknowledged() {
        let mut deliveries = Deliveries::default();
        let block = || Block::of(EncodedValue::new("element").unwrap());
        let [first, second, other] = [PeerId::OTHER, PeerId::OTHER, PeerId::LOCAL]
            .map(|consumer| deliveries.begin(consumer, block()));
        assert!(deliveries.end(first).is_some());
        assert!(deliveries.end(first).is_none(), "it is over");
        assert_eq!(deliveries.peer_lost(PeerId::OTHER).count(), 1);
        assert!(deliveries.end(second).is_none(), "it is back");
        assert!(deliveries.end(other).is_some() && deliveries.is_empty());
    }
}
