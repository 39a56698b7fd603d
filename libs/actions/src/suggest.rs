//! The name that may be meant by a misspelt one.

/// Returns the one of `known` that is most like `name`, if it is like it at all: at most a third of its letters differ.
pub fn suggest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = name.to_lowercase();
    let distances = known.into_iter().map(|each| {
        let distance = strsim::damerau_levenshtein(&folded, &each.to_lowercase());
        (distance, each)
    });
    let most = (name.chars().count() / 3).max(1);
    let near = distances.filter(|(distance, each)| *distance <= most && *each != name);
    near.min_by_key(|(distance, _)| *distance).map(|(_, each)| each)
}
