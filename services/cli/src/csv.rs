//! Tables in CSV (RFC 4180): fields between commas, in double quotes where they contain commas, quotes or line ends.

/// A line of a table, with the number of its first line in the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CsvLine {
    /// From 1.
    pub(crate) number: usize,
    pub(crate) fields: Vec<String>,
}

/// Parses `text`. Empty lines are left out. A line with a quote in the wrong place is an error, with its number.
pub(crate) fn parse(text: &str) -> Vec<Result<CsvLine, (usize, String)>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut lines, mut rest, mut number) = (Vec::new(), text, 1);
    while !rest.is_empty() {
        let (line, length) = line(rest);
        let consumed = &rest[..length];
        match line {
            Ok(fields) if fields.iter().all(|field| field.trim().is_empty()) => {}
            Ok(fields) => lines.push(Ok(CsvLine { number, fields })),
            Err(reason) => lines.push(Err((number, reason))),
        }
        number += consumed.matches('\n').count();
        rest = &rest[length..];
    }
    lines
}

/// Returns the fields of the first line of `text`, and the bytes that it has with its end. After an error the line ends at the next
/// line end.
fn line(text: &str) -> (Result<Vec<String>, String>, usize) {
    let (mut fields, mut at) = (Vec::new(), 0);
    let end_of_line =
        |from: usize| text[from..].find('\n').map_or(text.len(), |end| from + end + 1);
    loop {
        let rest = &text[at..];
        let Some(quoted) = rest.strip_prefix('"') else {
            let end = rest.find([',', '\n']).unwrap_or(rest.len());
            let field = rest[..end].trim_end_matches('\r');
            if field.contains('"') {
                let reason = "a field with a quote has to be in quotes".to_owned();
                return (Err(reason), end_of_line(at));
            }
            fields.push(field.trim().to_owned());
            at += end;
            match text[at..].starts_with(',') {
                true => at += 1,
                false => return (Ok(fields), end_of_line(at)),
            }
            continue;
        };
        let Some((field, length)) = quoted_field(quoted) else {
            return (Err("a quote is not closed".into()), end_of_line(at));
        };
        fields.push(field);
        at += 1 + length;
        let after = &text[at..];
        if after.starts_with(',') {
            at += 1;
        } else if after.is_empty() || after.starts_with('\n') || after.starts_with("\r\n") {
            return (Ok(fields), end_of_line(at));
        } else {
            return (Err("text follows a closing quote".into()), end_of_line(at));
        }
    }
}

/// Returns the field that `text` begins with, after its opening quote, and its length with the closing quote.
fn quoted_field(text: &str) -> Option<(String, usize)> {
    let (mut field, mut at) = (String::new(), 0);
    loop {
        let quote = at + text[at..].find('"')?;
        field += &text[at..quote];
        if !text[quote + 1..].starts_with('"') {
            return Some((field, quote + 1));
        }
        field.push('"');
        at = quote + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(text: &str) -> Vec<Vec<String>> {
        parse(text).into_iter().map(|line| line.unwrap().fields).collect()
    }

    #[test]
    fn fields_are_split_at_commas_outside_of_quotes() {
        assert_eq!(
            fields("a, b ,\"c, \"\"d\"\" \"\r\n\n1,,3"),
            [vec!["a", "b", "c, \"d\" "], vec!["1", "", "3"]]
        );
        assert_eq!(fields("\u{feff}a,b\n,,\n"), [["a", "b"]]);
    }

    #[test]
    fn a_line_has_its_number_in_the_file_and_a_wrong_one_does_not_hide_others() {
        let parsed = parse("a\n\"x\ny\"\nz\"\n\n\"b\"c\nlast\n\"open");
        let numbers: Vec<_> = parsed
            .iter()
            .map(|line| match line {
                Ok(line) => (line.number, true),
                Err((number, _)) => (*number, false),
            })
            .collect();
        assert_eq!(numbers, [(1, true), (2, true), (4, false), (6, false), (7, true), (8, false)]);
    }

    proptest! {
        #[test]
        fn any_fields_in_quotes_are_read_back(
            fields in proptest::collection::vec("[a,\"\\r\\n ]{0,6}", 2..5)
        ) {
            let quoted = fields.iter().map(|field| format!("\"{}\"", field.replace('"', "\"\"")));
            let line = quoted.collect::<Vec<_>>().join(",");
            let parsed = parse(&format!("{line}\nnext,line\n"));
            let all: Vec<_> = parsed.into_iter().map(|line| line.unwrap().fields).collect();
            let is_blank = fields.iter().all(|field| field.trim().is_empty());
            prop_assert_eq!(all.len(), if is_blank { 1 } else { 2 });
            prop_assert!(is_blank || all[0] == fields);
            prop_assert_eq!(all.last().unwrap().join(","), "next,line");
        }

        #[test]
        fn any_text_ends(text in "[a,\"\\r\\n]{0,40}") {
            parse(&text);
        }
    }
}
