//! Mutates valid inputs.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

/// Maximum size of an input, in bytes: more than any of our buffers holds.
pub const MAX_INPUT_BYTES: usize = 9000;
/// Maximum number of changes to one input.
const MAX_CHANGES: usize = 8;
/// Boundary values of lengths.
const BOUNDARIES: [u16; 12] = [0, 1, 7, 127, 128, 191, 254, 255, 256, 0x7fff, 0xfffe, 0xffff];

/// A pseudo-random generator; the same seed gives the same numbers.
type Generator = Xoshiro256PlusPlus;

/// Creates inputs by mutating valid ones.
#[derive(Clone, Debug)]
pub struct Mutator {
    seed: u64,
    corpus: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

/// A change of an input.
type Change = fn(&Mutator, &mut Vec<u8>, &mut Generator);

/// All changes; a change that is listed twice is twice as likely.
const CHANGES: [Change; 11] = [
    |_, input, generator| flip(input, generator),
    |_, input, generator| flip(input, generator),
    |_, input, generator| overwrite(input, generator),
    |_, input, generator| set_length(input, generator),
    |_, input, generator| set_length(input, generator),
    |_, input, generator| input.truncate(position(input, generator)),
    |_, input, generator| drop(input.drain(range(input, generator))),
    |_, input, generator| repeat(input, generator),
    Mutator::splice,
    Mutator::insert_word,
    Mutator::insert_word,
];

impl Mutator {
    /// Creates a mutator of `corpus`, which inserts `words`, with this seed.
    pub fn new(seed: u64, corpus: Vec<Vec<u8>>, words: Vec<Vec<u8>>) -> Self {
        Self { seed, corpus, words }
    }

    /// Returns the input with this number. One in nine is unchanged.
    pub fn input(&self, number: u64) -> Vec<u8> {
        let mut generator = Generator::seed_from_u64(self.seed.rotate_left(32) ^ number);
        let mut input = pick(&self.corpus, &mut generator).cloned().unwrap_or_default();
        for _ in 0..generator.random_range(0..=MAX_CHANGES) {
            if let Some(change) = pick(&CHANGES, &mut generator) {
                change(self, &mut input, &mut generator);
            }
        }
        input.truncate(MAX_INPUT_BYTES);
        input
    }

    /// Replaces the end with the end of another input.
    fn splice(&self, input: &mut Vec<u8>, generator: &mut Generator) {
        let Some(other) = pick(&self.corpus, generator) else { return };
        input.truncate(position(input, generator));
        let from = position(other, generator);
        input.extend(other.iter().skip(from));
    }

    /// Inserts a word at a random position, or overwrites bytes with it.
    fn insert_word(&self, input: &mut Vec<u8>, generator: &mut Generator) {
        let Some(word) = pick(&self.words, generator) else { return };
        let at = position(input, generator);
        let over = if generator.random() { word.len().min(input.len() - at) } else { 0 };
        input.splice(at..at + over, word.iter().copied());
    }
}

/// Flips a random bit.
fn flip(input: &mut [u8], generator: &mut Generator) {
    let at = position(input, generator);
    if let Some(byte) = input.get_mut(at) {
        *byte ^= 1 << generator.random_range(0..8_u8);
    }
}

/// Overwrites up to six bytes with random ones.
fn overwrite(input: &mut [u8], generator: &mut Generator) {
    let at = position(input, generator);
    let longest = generator.random_range(1..=6_usize);
    input.iter_mut().skip(at).take(longest).for_each(|byte| *byte = generator.random());
}

/// Writes a length of one or two bytes: a boundary value, or about the number of remaining bytes.
fn set_length(input: &mut [u8], generator: &mut Generator) {
    let at = position(input, generator);
    let left = u16::try_from(input.len() - at).unwrap_or(u16::MAX);
    let length = match generator.random_range(0..3_u8) {
        0 => left.wrapping_sub(generator.random_range(0..4)),
        _ => pick(&BOUNDARIES, generator).copied().unwrap_or_default(),
    };
    let [high, low] = length.to_be_bytes();
    let bytes: &[u8] = if generator.random() { &[high, low] } else { &[low] };
    input.iter_mut().skip(at).zip(bytes).for_each(|(byte, new)| *byte = *new);
}

/// Repeats a range, up to 256 times.
fn repeat(input: &mut Vec<u8>, generator: &mut Generator) {
    let range = range(input, generator);
    let bytes = input.get(range.clone()).unwrap_or_default();
    let times = (MAX_INPUT_BYTES / bytes.len().max(1)).min(1 << generator.random_range(0..9_u8));
    let repeated = bytes.repeat(times);
    input.splice(range.end..range.end, repeated);
    input.truncate(MAX_INPUT_BYTES);
}

/// Returns a random element of `all`; `None` if it is empty.
fn pick<'a, T>(all: &'a [T], generator: &mut Generator) -> Option<&'a T> {
    if all.is_empty() { None } else { all.get(generator.random_range(0..all.len())) }
}

/// Returns a random position in `input`, its end included.
fn position(input: &[u8], generator: &mut Generator) -> usize {
    generator.random_range(0..=input.len())
}

/// Returns a random range of `input`, mostly a short one.
fn range(input: &[u8], generator: &mut Generator) -> std::ops::Range<usize> {
    let from = position(input, generator);
    let longest = (input.len() - from).min(1 << generator.random_range(0..11_u16));
    from..from + generator.random_range(0..=longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutator(seed: u64) -> Mutator {
        let corpus = vec![b"GET /latest/user-data".to_vec(), vec![7; 300], Vec::new()];
        Mutator::new(seed, corpus, vec![b"meta-data".to_vec()])
    }

    #[test]
    fn an_input_is_determined_by_seed_and_number() {
        let inputs = |seed| (0..1000).map(|n| mutator(seed).input(n)).collect::<Vec<_>>();
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
    }

    #[test]
    fn inputs_are_bounded_and_mostly_distinct() {
        let mutator = mutator(3);
        let inputs: std::collections::HashSet<_> = (0..5000).map(|n| mutator.input(n)).collect();
        assert!(inputs.iter().all(|input| input.len() <= MAX_INPUT_BYTES));
        assert!(inputs.len() > 3000, "{}", inputs.len());
        assert!(inputs.iter().any(|input| input.len() > 4096));
        assert!(mutator.corpus.iter().all(|valid| inputs.contains(valid)));
    }

    #[test]
    fn an_empty_corpus_gives_empty_inputs() {
        let mutator = Mutator::new(1, Vec::new(), Vec::new());
        assert!((0..1000).all(|number| mutator.input(number).is_empty()));
    }
}
