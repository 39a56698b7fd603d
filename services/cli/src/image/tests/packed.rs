//! Images as publishers have them.

/// Size of the clusters of [`packed`], in bytes.
const CLUSTER: usize = 1 << 16;

/// Returns a qcow2 image, version 3, with the content `raw`: clusters of zeros are not stored,
/// others are compressed (in blocks of RFC 1951 that are stored), as `qemu-img convert -c` does.
pub(super) fn packed(raw: &[u8]) -> Vec<u8> {
    let clusters = raw.len().div_ceil(CLUSTER);
    assert!(clusters <= CLUSTER / 8, "one table of the second level");
    // Header, table of the first level, table of the second level; reference counts are not read.
    let mut image = vec![0; 3 * CLUSTER];
    for (at, value) in [(0, 0x5146_49fb_u32), (4, 3), (20, 16), (36, 1), (96, 4), (100, 104)] {
        image[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
    let refcounts = image.len() as u64;
    for (at, value) in [(24, raw.len() as u64), (40, CLUSTER as u64), (48, refcounts)] {
        image[at..at + 8].copy_from_slice(&value.to_be_bytes());
    }
    image[56..60].copy_from_slice(&1_u32.to_be_bytes());
    let second = (2 * CLUSTER as u64) | (1 << 63);
    image[CLUSTER..CLUSTER + 8].copy_from_slice(&second.to_be_bytes());
    image.resize(4 * CLUSTER, 0);
    for (number, cluster) in raw.chunks(CLUSTER).enumerate() {
        if cluster.iter().all(|byte| *byte == 0) {
            continue;
        }
        let start = image.len();
        let mut content = cluster.to_vec();
        content.resize(CLUSTER, 0);
        for (block, last) in content.chunks(CLUSTER / 2).zip([0, 1]) {
            let length = u16::try_from(block.len()).unwrap();
            image.push(last);
            image.extend(length.to_le_bytes());
            image.extend((!length).to_le_bytes());
            image.extend(block);
        }
        // Bit 62: compressed. Bits 54 to 61: the further sectors that it begins in.
        let sectors = (image.len() - 1) / 512 - start / 512;
        let entry = start as u64 | (sectors as u64) << 54 | 1 << 62;
        let place = 2 * CLUSTER + number * 8;
        image[place..place + 8].copy_from_slice(&entry.to_be_bytes());
    }
    image.resize(image.len().next_multiple_of(512), 0);
    image
}
