//! Settings of the allocator.

/// Makes the allocator keep freed blocks of up to 16 MiB for the next message of that size, in
/// place of returning each to the system and getting it again page by page.
///
/// glibc raises its threshold for mapped blocks to the size of one that is freed: smaller blocks
/// come from its heaps from then on, which keep twice as much at their ends (`M_MMAP_THRESHOLD` in
/// mallopt(3)). Other allocators see an ordinary block. No page of it is touched. If the address
/// space is limited to less, large blocks are not kept.
pub fn keep_large_blocks() {
    const LARGE: usize = 16 << 20;
    let mut block = Vec::<u8>::new();
    if block.try_reserve_exact(LARGE).is_ok() {
        drop(std::hint::black_box(block));
    }
}
