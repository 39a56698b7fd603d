//! Pages of the reference that the program makes from its own tables.
//!
//! The made part of a page is between two comments. A test of each page compares it; with [`VARIABLE`] in the environment the tests write it.

/// The variable with which the tests write the pages instead of comparing them.
const VARIABLE: &str = "WRITE_REFERENCE";
/// The line before the made part.
const START: &str = "<!-- Made by the program. Write it anew: WRITE_REFERENCE=1 cargo test --workspace the_reference_page -->\n";
/// The line behind it.
const END: &str = "<!-- End of what the program made. -->\n";

/// Compares the made part of the `page`, which is a path in the work tree, with `made`. Writes it if the environment asks for that.
///
/// # Panics
/// If they differ, or the page lacks one of the two comments, or cannot be read or written.
pub fn check(page: &str, made: &str) {
    let path = crate::root().join(page);
    let text = std::fs::read_to_string(&path).expect("the page can be read");
    let parts = text.split_once(START).and_then(|(head, rest)| Some((head, rest.split_once(END)?)));
    let Some((head, (written, tail))) = parts else {
        panic!("{page}: the made part is between the lines\n{START}{END}");
    };
    let made = format!("\n{}\n\n", made.trim());
    if std::env::var_os(VARIABLE).is_some() {
        std::fs::write(path, format!("{head}{START}{made}{END}{tail}"))
            .expect("the page is written");
        return;
    }
    let lines = written.lines().zip(made.lines()).position(|(written, made)| written != made);
    let first = lines.unwrap_or_else(|| written.lines().count().min(made.lines().count()));
    let line = |text: &str| text.lines().nth(first).unwrap_or("(nothing)").to_owned();
    assert!(
        written == made,
        "{page} is not what the program makes. It has\n{}\nin place of\n{}\nWrite it anew:\n\n    {VARIABLE}=1 cargo test --workspace the_reference_page\n",
        line(written),
        line(&made),
    );
}
