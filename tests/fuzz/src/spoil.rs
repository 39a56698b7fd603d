//! Good inputs with something wrong in them.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

/// The longest input, in octets: more than any of our buffers takes.
pub const LONGEST: usize = 9000;
/// The most changes to one input.
const CHANGES: usize = 8;
/// Numbers at which something ends.
const EDGES: [u16; 12] = [0, 1, 7, 127, 128, 191, 254, 255, 256, 0x7fff, 0xfffe, 0xffff];

/// Draws a row of numbers that has no order and is always the same.
type Draw = Xoshiro256PlusPlus;

/// Makes inputs from good ones.
#[derive(Clone, Debug)]
pub struct Spoiler {
    seed: u64,
    corpus: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

/// What is done to an input.
type Change = fn(&Spoiler, &mut Vec<u8>, &mut Draw);

/// Every one, the likelier ones twice.
const ALL: [Change; 11] = [
    |_, input, draw| flip(input, draw),
    |_, input, draw| flip(input, draw),
    |_, input, draw| overwrite(input, draw),
    |_, input, draw| measure(input, draw),
    |_, input, draw| measure(input, draw),
    |_, input, draw| input.truncate(place(input, draw)),
    |_, input, draw| drop(input.drain(part(input, draw))),
    |_, input, draw| repeat(input, draw),
    Spoiler::splice,
    Spoiler::say,
    Spoiler::say,
];

impl Spoiler {
    /// Changes inputs of `corpus`, using `words`, by `seed`.
    pub fn new(seed: u64, corpus: Vec<Vec<u8>>, words: Vec<Vec<u8>>) -> Self {
        Self { seed, corpus, words }
    }

    /// The input of this number; one in nine is as good as ever.
    pub fn input(&self, number: u64) -> Vec<u8> {
        let mut draw = Draw::seed_from_u64(self.seed.rotate_left(32) ^ number);
        let mut input = pick(&self.corpus, &mut draw).cloned().unwrap_or_default();
        for _ in 0..draw.random_range(0..=CHANGES) {
            if let Some(change) = pick(&ALL, &mut draw) {
                change(self, &mut input, &mut draw);
            }
        }
        input.truncate(LONGEST);
        input
    }

    /// The end of another one.
    fn splice(&self, input: &mut Vec<u8>, draw: &mut Draw) {
        let Some(other) = pick(&self.corpus, draw) else { return };
        input.truncate(place(input, draw));
        let from = place(other, draw);
        input.extend(other.iter().skip(from));
    }

    /// A word somewhere, in the place of what is there or before it.
    fn say(&self, input: &mut Vec<u8>, draw: &mut Draw) {
        let Some(word) = pick(&self.words, draw) else { return };
        let at = place(input, draw);
        let over = if draw.random() { word.len().min(input.len() - at) } else { 0 };
        input.splice(at..at + over, word.iter().copied());
    }
}

/// Another bit somewhere.
fn flip(input: &mut [u8], draw: &mut Draw) {
    let at = place(input, draw);
    if let Some(octet) = input.get_mut(at) {
        *octet ^= 1 << draw.random_range(0..8_u8);
    }
}

/// Other octets somewhere.
fn overwrite(input: &mut [u8], draw: &mut Draw) {
    let at = place(input, draw);
    let longest = draw.random_range(1..=6_usize);
    input.iter_mut().skip(at).take(longest).for_each(|octet| *octet = draw.random());
}

/// Another length: one at an edge, or about what is left; in one octet or in two.
fn measure(input: &mut [u8], draw: &mut Draw) {
    let at = place(input, draw);
    let left = u16::try_from(input.len() - at).unwrap_or(u16::MAX);
    let length = match draw.random_range(0..3_u8) {
        0 => left.wrapping_sub(draw.random_range(0..4)),
        _ => pick(&EDGES, draw).copied().unwrap_or_default(),
    };
    let [high, low] = length.to_be_bytes();
    let written: &[u8] = if draw.random() { &[high, low] } else { &[low] };
    input.iter_mut().skip(at).zip(written).for_each(|(octet, new)| *octet = *new);
}

/// The same again, up to some hundred times.
fn repeat(input: &mut Vec<u8>, draw: &mut Draw) {
    let part = part(input, draw);
    let again = input.get(part.clone()).unwrap_or_default();
    let times = (LONGEST / again.len().max(1)).min(1 << draw.random_range(0..9_u8));
    let again = again.repeat(times);
    input.splice(part.end..part.end, again);
    input.truncate(LONGEST);
}

/// One of `all`, if there is any.
fn pick<'a, T>(all: &'a [T], draw: &mut Draw) -> Option<&'a T> {
    if all.is_empty() { None } else { all.get(draw.random_range(0..all.len())) }
}

/// Somewhere in `input`, its end included.
fn place(input: &[u8], draw: &mut Draw) -> usize {
    draw.random_range(0..=input.len())
}

/// Some part of `input`, mostly a short one.
fn part(input: &[u8], draw: &mut Draw) -> std::ops::Range<usize> {
    let from = place(input, draw);
    let longest = (input.len() - from).min(1 << draw.random_range(0..11_u16));
    from..from + draw.random_range(0..=longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoiler(seed: u64) -> Spoiler {
        let corpus = vec![b"GET /latest/user-data".to_vec(), vec![7; 300], Vec::new()];
        Spoiler::new(seed, corpus, vec![b"meta-data".to_vec()])
    }

    #[test]
    fn an_input_follows_from_seed_and_number() {
        let inputs = |seed| (0..1000).map(|n| spoiler(seed).input(n)).collect::<Vec<_>>();
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
    }

    #[test]
    fn inputs_are_bounded_and_seldom_alike() {
        let spoiler = spoiler(3);
        let inputs: std::collections::HashSet<_> = (0..5000).map(|n| spoiler.input(n)).collect();
        assert!(inputs.iter().all(|input| input.len() <= LONGEST));
        assert!(inputs.len() > 3000, "{}", inputs.len());
        assert!(inputs.iter().any(|input| input.len() > 4096));
        assert!(spoiler.corpus.iter().all(|good| inputs.contains(good)));
    }

    #[test]
    fn without_good_inputs_there_are_empty_ones() {
        let spoiler = Spoiler::new(1, Vec::new(), Vec::new());
        assert!((0..1000).all(|number| spoiler.input(number).is_empty()));
    }
}
