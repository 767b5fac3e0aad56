//! Elements that consumers have to acknowledge.

use fiber_core::SortedMap;

use crate::queue::blocks::Block;
use fiber_runtime::mesh::PeerId;

/// Delivered elements without an acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    /// By the number of the delivery, so that elements come back in the order of their deliveries.
    taken: SortedMap<u64, (PeerId, Block)>,
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
    pub(super) fn peer_lost(&mut self, peer: PeerId) -> Vec<Block> {
        let of_peer = self.taken.iter().filter(|(_, (consumer, _))| *consumer == peer);
        let lost: Vec<_> = of_peer.map(|(delivery, _)| *delivery).collect();
        lost.into_iter().filter_map(|delivery| self.end(delivery)).collect()
    }
}

#[cfg(test)]
mod tests {
    use fiber_values::codec::EncodedValue;

    use super::*;

    #[test]
    fn a_lost_process_returns_the_elements_that_it_has_not_acknowledged() {
        let mut deliveries = Deliveries::default();
        let block = || Block::of(EncodedValue::new("element").unwrap());
        let [first, second, other] = [PeerId::OTHER, PeerId::OTHER, PeerId::LOCAL]
            .map(|consumer| deliveries.begin(consumer, block()));
        assert!(deliveries.end(first).is_some());
        assert!(deliveries.end(first).is_none(), "it is over");
        assert_eq!(deliveries.peer_lost(PeerId::OTHER).len(), 1);
        assert!(deliveries.end(second).is_none(), "it is back");
        assert!(deliveries.end(other).is_some() && deliveries.is_empty());
    }

    #[test]
    fn the_elements_of_a_lost_process_come_back_in_the_order_of_their_deliveries() {
        let mut deliveries = Deliveries::default();
        let elements: Vec<_> = (0..100_u32).map(|x| EncodedValue::new(&x).unwrap()).collect();
        for element in &elements {
            deliveries.begin(PeerId::OTHER, Block::of(element.clone()));
        }
        let back = deliveries.peer_lost(PeerId::OTHER).into_iter().flat_map(Block::into_elements);
        assert!(back.map(|element| element.bytes).eq(elements.into_iter().map(|one| one.bytes)));
    }
}
