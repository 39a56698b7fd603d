//! Enrolment of the machines in a CSV file: each line by itself, several at a time. A line that fails is named with its number and its
//! reason, and does not prevent the others.

use std::collections::BTreeMap;
use std::path::Path;

use runtime::Channel;
use serde_json::{Value, json};
use tinwright::hardware::v1::Location;
use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::Protocol;
use tokio::task::JoinSet;

use super::{EnrolHardware, discovery, notes, result};
use crate::connect::{Io, call};
use crate::csv::{self, CsvLine};
use crate::resource::Resource as _;
use crate::{bmc_address, failure, input, output};

/// The columns that a file may have, besides `label:KEY`.
const COLUMNS: [&str; 8] =
    ["bmc", "username", "password", "system", "name", "location", "zone", "labels"];
/// Those that it must have.
const REQUIRED: [&str; 3] = ["bmc", "username", "password"];
/// The first part of the name of a column with one label.
const LABEL: &str = "label:";

/// A line that enrols a machine.
struct Line {
    number: usize,
    /// The address of the BMC, as it is written.
    bmc: String,
    /// The name of the location; empty for none.
    location: String,
    request: pb::EnrolBmcRequest,
}

/// The result of a line.
struct Outcome {
    number: usize,
    bmc: String,
    enrolled: Result<pb::EnrolBmcResponse, String>,
}

/// Enrols the machines in the file at `path`. Fails if one of them could not be enrolled.
pub(super) async fn enrol(
    path: &Path,
    options: &EnrolHardware,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let (lines, mut outcomes) = read(&input::text(path)?, options)?;
    let lines = locate(lines, io.channel, &mut outcomes).await;
    let is_table = options.output.is_for_people();
    for outcome in outcomes.iter().filter(|_| is_table) {
        io.print(&text(outcome))?;
    }
    let (mut tasks, mut waiting) = (JoinSet::new(), lines.into_iter());
    loop {
        while tasks.len() < usize::from(options.parallel)
            && let Some(line) = waiting.next()
        {
            let channel = io.channel.clone();
            tasks.spawn(async move {
                let Line { number, bmc, request, .. } = line;
                let enrolled = call(&channel, request).await;
                Outcome { number, bmc, enrolled: enrolled.map_err(|status| reason(status.into())) }
            });
        }
        let Some(ended) = tasks.join_next().await else { break };
        let outcome = ended?;
        if is_table {
            io.print(&text(&outcome))?;
        }
        outcomes.push(outcome);
    }
    if !is_table {
        outcomes.sort_by_key(|outcome| outcome.number);
        let values: anyhow::Result<_> = outcomes.iter().map(value).collect();
        output::print_values(io.out, values?, &options.output)?;
    }
    summarize(&outcomes)
}

/// Returns the lines of `text` that may be enrolled, and the wrong ones. A file without the required columns is an error.
fn read(text: &str, options: &EnrolHardware) -> anyhow::Result<(Vec<Line>, Vec<Outcome>)> {
    let mut parsed = csv::parse(text).into_iter();
    let header = match parsed.next() {
        Some(Ok(header)) => header.fields,
        Some(Err((number, reason))) => anyhow::bail!("line {number}: {reason}"),
        None => anyhow::bail!("the file is empty: its first line has to name the columns"),
    };
    check_header(&header)?;
    let (mut lines, mut wrong): (Vec<Line>, _) = (Vec::new(), Vec::new());
    let mut lines_by_bmc: BTreeMap<(String, String), usize> = BTreeMap::new();
    for parsed in parsed {
        let (number, fields) = match parsed {
            Ok(CsvLine { number, fields }) => (number, Ok(fields)),
            Err((number, reason)) => (number, Err(anyhow::Error::msg(reason))),
        };
        let mut bmc = String::new();
        let line = fields.and_then(|fields| {
            let of = values(&header, fields)?;
            bmc = of.get("bmc").cloned().unwrap_or_default();
            let line = line(number, &of, options)?;
            let key = (line.bmc.clone(), of.get("system").cloned().unwrap_or_default());
            if let Some(first) = lines_by_bmc.insert(key, number) {
                anyhow::bail!("it has the same BMC as line {first}");
            }
            Ok(line)
        });
        match line {
            Ok(line) => lines.push(line),
            Err(error) => {
                wrong.push(Outcome { number, bmc, enrolled: Err(failure::line(&error)) });
            }
        }
    }
    Ok((lines, wrong))
}

fn check_header(header: &[String]) -> anyhow::Result<()> {
    for (at, column) in header.iter().enumerate() {
        let is_label = column.strip_prefix(LABEL).is_some_and(|key| !key.is_empty());
        anyhow::ensure!(
            is_label || COLUMNS.contains(&column.as_str()),
            "line 1: unknown column {column:?}: the columns are {} and label:KEY",
            COLUMNS.join(", ")
        );
        anyhow::ensure!(!header[..at].contains(column), "line 1: two columns {column:?}");
    }
    for column in REQUIRED {
        anyhow::ensure!(header.iter().any(|it| it == column), "line 1: no column {column:?}");
    }
    Ok(())
}

/// Returns the fields of a line that are not empty, by their columns.
fn values(header: &[String], fields: Vec<String>) -> anyhow::Result<BTreeMap<&str, String>> {
    let (found, wanted) = (fields.len(), header.len());
    anyhow::ensure!(found == wanted, "it has {found} fields, and the first line {wanted}");
    let columns = header.iter().map(String::as_str).zip(fields);
    Ok(columns.filter(|(_, field)| !field.is_empty()).collect())
}

/// Reads a line with these values.
fn line(
    number: usize,
    of: &BTreeMap<&str, String>,
    options: &EnrolHardware,
) -> anyhow::Result<Line> {
    for column in REQUIRED {
        anyhow::ensure!(of.contains_key(column), "{column} is missing");
    }
    let value = |column: &str| of.get(column).cloned().unwrap_or_default();
    let mut protocol = bmc_address::protocol(&value("bmc"))?;
    match &mut protocol {
        Protocol::Redfish(redfish) => {
            redfish.signed_by_root = options.signed_by_root;
            redfish.legacy_tls = options.legacy_tls;
            if of.contains_key("system") {
                redfish.system_id = value("system");
            }
        }
        Protocol::Ipmi(_) => {
            anyhow::ensure!(!of.contains_key("system"), "a system is for Redfish only");
        }
    }
    let mut labels: BTreeMap<_, _> = options.labels.iter().cloned().collect();
    for pair in value("labels").split(';').filter(|pair| !pair.trim().is_empty()) {
        labels.extend([input::pair(pair.trim()).map_err(anyhow::Error::msg)?]);
    }
    let single = of.iter().filter_map(|(column, text)| Some((column.strip_prefix(LABEL)?, text)));
    labels.extend(single.map(|(key, text)| (key.to_owned(), text.clone())));
    let value_or_option = |column: &str, option: &Option<String>| {
        of.get(column).cloned().or_else(|| option.clone()).unwrap_or_default()
    };
    let bmc = pb::Bmc {
        protocol: Some(protocol),
        username: value("username"),
        password: value("password"),
        ..pb::Bmc::default()
    };
    let request = pb::EnrolBmcRequest {
        bmc: Some(bmc),
        name: value("name"),
        zone: value_or_option("zone", &options.zone),
        labels,
        discovery: discovery(options).into(),
        ..pb::EnrolBmcRequest::default()
    };
    let location = value_or_option("location", &options.location);
    Ok(Line { number, bmc: value("bmc"), location, request })
}

/// Sets the ids of the locations, and looks for each location once. A line goes to `wrong` if its
/// location is not found.
async fn locate(lines: Vec<Line>, channel: &Channel, wrong: &mut Vec<Outcome>) -> Vec<Line> {
    let (mut ids, mut located) = (BTreeMap::new(), Vec::new());
    for mut line in lines {
        if line.location.is_empty() {
            located.push(line);
            continue;
        }
        if !ids.contains_key(&line.location) {
            let id = Location::find_id(channel, &line.location).await.map_err(reason);
            ids.insert(line.location.clone(), id);
        }
        match &ids[&line.location] {
            Ok(id) => {
                line.request.location_id.clone_from(id);
                located.push(line);
            }
            Err(reason) => {
                let enrolled = Err(format!("location: {reason}"));
                wrong.push(Outcome { number: line.number, bmc: line.bmc, enrolled });
            }
        }
    }
    located
}

fn reason(error: anyhow::Error) -> String {
    failure::line(&error)
}

/// Returns the line for people.
fn text(Outcome { number, bmc, enrolled }: &Outcome) -> String {
    let bmc = if bmc.is_empty() { String::new() } else { format!(" {bmc}:") };
    match enrolled {
        Err(reason) => format!("line {number}:{bmc} FAILED: {reason}"),
        Ok(done) => {
            let notes = notes(done);
            let notes = if notes.is_empty() { notes } else { format!(" ({notes})") };
            format!("line {number}:{bmc} {} {}{notes}", result(done), done.hardware_id)
        }
    }
}

/// Returns the line for programs.
fn value(Outcome { number, bmc, enrolled }: &Outcome) -> anyhow::Result<Value> {
    Ok(match enrolled {
        Err(reason) => json!({"line": number, "bmc": bmc, "error": reason}),
        Ok(done) => {
            json!({"line": number, "bmc": bmc, "enrolled": tinwright::json::write(done)?})
        }
    })
}

/// Fails if a line failed, and names all of those.
fn summarize(outcomes: &[Outcome]) -> anyhow::Result<()> {
    let failed = outcomes.iter().filter(|outcome| outcome.enrolled.is_err());
    let mut failed: Vec<_> = failed.map(|outcome| outcome.number).collect();
    failed.sort_unstable();
    let numbers: Vec<_> = failed.iter().map(ToString::to_string).collect();
    anyhow::ensure!(
        failed.is_empty(),
        "{} of {} machines were not enrolled: see lines {}",
        failed.len(),
        outcomes.len(),
        numbers.join(", ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        options: EnrolHardware,
    }

    fn options(more: &str) -> EnrolHardware {
        let words = format!("enrol --csv x {more}");
        Program::parse_from(words.split_whitespace()).options
    }

    fn read_lines(text: &str) -> (Vec<Line>, Vec<(usize, String)>) {
        let (lines, wrong) = read(text, &options("-l rack=a --legacy-tls")).unwrap();
        let wrong = wrong.into_iter().map(|it| (it.number, it.enrolled.unwrap_err()));
        (lines, wrong.collect())
    }

    #[test]
    fn a_line_has_its_columns_and_the_options_that_it_lacks() {
        let (lines, wrong) = read_lines(
            "bmc,username,password,system,location,labels,label:row\n\
             https://192.0.2.1,u,\"a,b \",node1,lab,x=1; y=2,7\n\
             ipmi://192.0.2.2:6230,u,p,,,,\n",
        );
        assert!(wrong.is_empty(), "{wrong:?}");
        let [first, second] = lines.as_slice() else { panic!() };
        let bmc = first.request.bmc.as_ref().unwrap();
        assert_eq!((bmc.username.as_str(), bmc.password.as_str()), ("u", "a,b "));
        let Some(Protocol::Redfish(redfish)) = &bmc.protocol else { panic!() };
        assert_eq!(
            (redfish.url.as_str(), redfish.system_id.as_str()),
            ("https://192.0.2.1", "node1")
        );
        assert!(redfish.legacy_tls);
        let labels: Vec<_> =
            first.request.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(labels, ["rack=a", "row=7", "x=1", "y=2"]);
        assert_eq!(first.location, "lab");
        assert!(matches!(second.request.bmc.as_ref().unwrap().protocol, Some(Protocol::Ipmi(_))));
    }

    #[test]
    fn wrong_lines_are_named_with_number_and_reason_and_the_others_remain() {
        let (lines, wrong) = read_lines(
            "bmc,username,password\n\
             https://192.0.2.1,u,p\n\
             192.0.2.2,u,p\n\
             https://192.0.2.3,u\n\
             https://192.0.2.4,u,\n\
             https://192.0.2.1,u,p\n\
             https://192.0.2.5,u,p\"\n\
             https://192.0.2.6,u,p\n",
        );
        assert_eq!(lines.iter().map(|line| line.number).collect::<Vec<_>>(), [2, 8]);
        let reasons = [
            (
                3,
                "\"192.0.2.2\" is not the address of a BMC: https://HOST[:PORT] or ipmi://HOST[:PORT]",
            ),
            (4, "it has 2 fields, and the first line 3"),
            (5, "password is missing"),
            (6, "it has the same BMC as line 2"),
            (7, "a field with a quote has to be in quotes"),
        ];
        assert_eq!(wrong, reasons.map(|(number, reason)| (number, reason.to_owned())));
    }

    #[test]
    fn a_file_without_the_columns_is_refused_as_a_whole() {
        let refused = |text: &str| match read(text, &options("")) {
            Ok(_) => panic!("{text}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(refused("bmc,username\nx,y\n"), "line 1: no column \"password\"");
        assert!(
            refused("bmc,usrname,password\n").starts_with("line 1: unknown column \"usrname\"")
        );
        assert_eq!(refused("bmc,bmc\n"), "line 1: two columns \"bmc\"");
        assert!(refused("").starts_with("the file is empty"));
    }

    #[test]
    fn no_password_is_in_a_result() {
        let (lines, wrong) = read("bmc,username,password\nx,u,secret\n", &options("")).unwrap();
        assert!(lines.is_empty());
        assert!(!wrong.iter().any(|outcome| text(outcome).contains("secret")));
    }
}
