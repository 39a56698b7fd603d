//! A disk in memory that fails on request, and forgets what is not durable when its power fails.
//!
//! A power failure keeps any part of the changes of names since the last sync, in their order. Of a
//! block that was written since the last sync of its file it keeps the old bytes, the new ones, or
//! neither.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use super::random::Random;
use crate::disk::{CacheDisk, DataFile, Job};

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 64;

/// The disk. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SimDisk(Arc<Mutex<SimState>>);

/// Content of the disk, and its faults.
#[derive(Debug)]
pub(crate) struct SimState {
    pub(crate) random: Random,
    /// Percentage of operations that fail.
    pub(crate) fail_percent: u64,
    /// Bytes of the disk.
    pub(crate) capacity: u64,
    /// False: others use the space that was reported as free.
    pub(crate) is_free_space_ours: bool,
    /// Number of calls of sync of a file that fail.
    pub(crate) failing_syncs: u64,
    /// Jobs that have started and not ended.
    pub(crate) jobs: usize,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of names since the last sync.
    changes: Vec<(String, Option<usize>)>,
    inodes: Vec<Inode>,
    clock: u64,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    /// Blocks that were written since the last sync.
    dirty: BTreeSet<u64>,
    allocated: BTreeSet<u64>,
    /// Number of failed writes.
    failures: u64,
    changed: u64,
}

/// An open file of the disk.
#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: usize,
    /// Failed writes that this file has reported.
    reported: Mutex<u64>,
}

impl SimDisk {
    pub(crate) fn new(random: Random) -> Self {
        Self(Arc::new(Mutex::new(SimState {
            random,
            fail_percent: 0,
            capacity: u64::MAX,
            is_free_space_ours: true,
            failing_syncs: 0,
            jobs: 0,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            changes: Vec::new(),
            inodes: Vec::new(),
            clock: 0,
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, SimState> {
        self.0.lock().unwrap()
    }

    /// Cuts the power.
    pub(crate) fn cut_power(&self) {
        let state = &mut *self.state();
        state.jobs = 0;
        state.names = state.durable_names.clone();
        for (name, inode) in std::mem::take(&mut state.changes) {
            if state.random.chance(50) {
                set_name(&mut state.names, &name, inode);
            }
        }
        state.durable_names = state.names.clone();
        for inode in &mut state.inodes {
            inode.cut_power(&mut state.random);
        }
    }

    /// Writes wrong bytes over a file.
    pub(crate) fn corrupt(&self, name: &str) {
        let state = &mut *self.state();
        let inode = &mut state.inodes[state.names[name]];
        inode.bytes.iter_mut().for_each(|byte| *byte = !*byte);
        inode.durable.clone_from(&inode.bytes);
    }

    /// Returns the names of all files.
    pub(crate) fn all_names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }
}

impl SimState {
    /// Returns the allocated bytes of files whose names end with `suffix`.
    pub(crate) fn allocated(&self, suffix: &str) -> u64 {
        let inodes = self.names.iter().filter(|(name, _)| name.ends_with(suffix));
        inodes.map(|(_, inode)| BLOCK * self.inodes[*inode].allocated.len() as u64).sum()
    }

    fn fault(&mut self) -> io::Result<()> {
        let percent = self.fail_percent;
        if self.random.chance(percent) { Err(io::Error::other("fault")) } else { Ok(()) }
    }

    fn change(&mut self, name: &str, inode: Option<usize>) {
        set_name(&mut self.names, name, inode);
        self.changes.push((name.to_owned(), inode));
    }

    fn allocate(&mut self, inode: usize, blocks: Range<u64>) -> io::Result<()> {
        for block in blocks {
            let is_full = self.allocated("") + BLOCK > self.capacity;
            let allocated = &mut self.inodes[inode].allocated;
            if !allocated.contains(&block) && is_full {
                return Err(io::ErrorKind::StorageFull.into());
            }
            allocated.insert(block);
        }
        Ok(())
    }
}

impl Inode {
    fn cut_power(&mut self, random: &mut Random) {
        if random.chance(50) {
            self.durable.resize(self.bytes.len(), 0);
        }
        for block in std::mem::take(&mut self.dirty) {
            let outcome = random.below(3);
            let bytes = block * BLOCK..(block + 1) * BLOCK;
            for at in bytes.start as usize..self.durable.len().min(bytes.end as usize) {
                match outcome {
                    0 => {}
                    1 => self.durable[at] = self.bytes.get(at).copied().unwrap_or_default(),
                    _ => self.durable[at] = random.next() as u8,
                }
            }
        }
        self.bytes.clone_from(&self.durable);
    }
}

impl CacheDisk for SimDisk {
    fn start(&self, job: Job) {
        let (disk, turns) = (self.clone(), self.state().random.below(4));
        self.state().jobs += 1;
        tokio::spawn(async move {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            job();
            disk.state().jobs -= 1;
        });
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let state = self.state();
        let mut names: Vec<_> = state.names.clone().into_iter().collect();
        names.sort_by_key(|(_, inode)| state.inodes[*inode].changed);
        Ok(names.into_iter().map(|(name, _)| name).collect())
    }

    fn open(&self, name: &str, is_new: bool) -> io::Result<Arc<dyn DataFile>> {
        let mut state = self.state();
        state.fault()?;
        let inode = match state.names.get(name) {
            Some(inode) => *inode,
            None if is_new => {
                state.inodes.push(Inode::default());
                let inode = state.inodes.len() - 1;
                state.change(name, Some(inode));
                inode
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        if is_new {
            state.inodes[inode].bytes.clear();
            state.inodes[inode].allocated.clear();
        }
        let reported = Mutex::new(state.inodes[inode].failures);
        Ok(Arc::new(SimFile { disk: self.clone(), inode, reported }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.fault()?;
        let inode = state.names.get(from).copied().ok_or(io::ErrorKind::NotFound)?;
        state.change(to, Some(inode));
        state.change(from, None);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.fault()?;
        if state.names.contains_key(name) {
            state.change(name, None);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        state.fault()?;
        state.durable_names = state.names.clone();
        state.changes.clear();
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        let mut state = self.state();
        state.fault()?;
        let used = if state.is_free_space_ours { state.allocated("") } else { 0 };
        Ok(state.capacity.saturating_sub(used))
    }
}

impl DataFile for SimFile {
    fn size(&self) -> io::Result<u64> {
        let mut state = self.disk.state();
        state.fault()?;
        Ok(state.inodes[self.inode].bytes.len() as u64)
    }

    fn resize(&self, size: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.fault()?;
        state.inodes[self.inode].bytes.resize(size as usize, 0);
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.fault()?;
        let offset = offset as usize;
        let bytes = state.inodes[self.inode].bytes.get(offset..offset + buffer.len());
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let state = &mut *self.disk.state();
        let fault = state.fault();
        let written = if fault.is_err() { bytes.len() / 2 } else { bytes.len() };
        let end = offset + written as u64;
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        state.allocate(self.inode, blocks.clone())?;
        state.clock += 1;
        let inode = &mut state.inodes[self.inode];
        inode.bytes.resize(inode.bytes.len().max(end as usize), 0);
        inode.bytes[offset as usize..end as usize].copy_from_slice(&bytes[..written]);
        inode.dirty.extend(blocks);
        inode.changed = state.clock;
        fault
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        let mut state = self.disk.state();
        state.fault()?;
        state.allocate(self.inode, range.start / BLOCK..range.end.div_ceil(BLOCK))
    }

    fn release(&self, range: Range<u64>) -> io::Result<()> {
        let mut state = self.disk.state();
        let inode = &mut state.inodes[self.inode];
        for block in range.start / BLOCK..range.end.div_ceil(BLOCK) {
            inode.allocated.remove(&block);
        }
        inode.bytes[range.start as usize..range.end as usize].fill(0);
        inode.durable.resize(inode.bytes.len(), 0);
        inode.durable[range.start as usize..range.end as usize].fill(0);
        Ok(())
    }

    /// A failed write is reported to each open file once. Its blocks are not written again.
    fn sync(&self) -> io::Result<()> {
        let state = &mut *self.disk.state();
        let is_failing = state.failing_syncs > 0;
        state.failing_syncs -= u64::from(is_failing);
        if is_failing || state.fault().is_err() {
            let inode = &mut state.inodes[self.inode];
            inode.failures += 1;
            inode.dirty.clear();
        }
        let inode = &mut state.inodes[self.inode];
        let mut reported = self.reported.lock().unwrap();
        if *reported != inode.failures {
            *reported = inode.failures;
            return Err(io::Error::other("lost"));
        }
        inode.durable.resize(inode.bytes.len(), 0);
        for block in std::mem::take(&mut inode.dirty) {
            let bytes = block * BLOCK..(block + 1) * BLOCK;
            let bytes = bytes.start as usize..inode.bytes.len().min(bytes.end as usize);
            inode.durable[bytes.clone()].copy_from_slice(&inode.bytes[bytes]);
        }
        Ok(())
    }

    fn touch(&self) -> io::Result<()> {
        let state = &mut *self.disk.state();
        state.clock += 1;
        state.inodes[self.inode].changed = state.clock;
        Ok(())
    }
}

fn set_name(names: &mut BTreeMap<String, usize>, name: &str, inode: Option<usize>) {
    match inode {
        Some(inode) => names.insert(name.to_owned(), inode),
        None => names.remove(name),
    };
}
