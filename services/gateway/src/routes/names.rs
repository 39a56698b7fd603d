//! Names of calls and messages as words, and words as names in paths.

/// Splits a name such as `GetPowerJob` into its words.
pub(super) fn words(camel: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for letter in camel.chars() {
        match words.last_mut() {
            Some(word) if !letter.is_uppercase() => word.push(letter),
            _ => words.push(letter.to_string()),
        }
    }
    words
}

/// Returns `words` as `power-job`.
pub(super) fn kebab(words: &[String]) -> String {
    words.join("-").to_lowercase()
}

/// Returns `words` as `power_job`.
pub(super) fn snake(words: &[String]) -> String {
    words.join("_").to_lowercase()
}

/// Returns `words` as `powerJob`.
pub(super) fn lower_camel(words: &[String]) -> String {
    let mut name = words.concat();
    let first = words.first().map_or(0, String::len);
    if let Some(word) = name.get_mut(..first) {
        word.make_ascii_lowercase();
    }
    name
}

/// Returns `words` without `part`, if they contain it in one piece and are more than it.
pub(super) fn without(words: &[String], part: &[String]) -> Option<Vec<String>> {
    let begin = words.windows(part.len().max(1)).position(|window| window == part)?;
    let rest: Vec<_> = words[..begin].iter().chain(&words[begin + part.len()..]).cloned().collect();
    (!rest.is_empty()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_and_joined() {
        let job = words("PowerJob");
        assert_eq!(job, ["Power", "Job"]);
        assert_eq!([kebab(&job), snake(&job)], ["power-job", "power_job"]);
        assert_eq!(lower_camel(&job), "powerJob");
    }

    #[test]
    fn a_noun_is_taken_out_of_a_name() {
        let name = words("SetHardwareState");
        assert_eq!(without(&name, &words("Hardware")).unwrap(), ["Set", "State"]);
        assert_eq!(without(&name, &words("HardwareSet")), None);
        assert_eq!(without(&name, &name), None, "nothing would be left");
    }
}
