//! The worker's script is run as iPXE runs it, against a server that is away for a while.

use std::collections::HashMap;

use super::*;

const SITE: &str = "http://198.51.100.1:7080";
const HOUR: u64 = 3600;

/// The end of a script.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The kernel was started.
    Booted,
    /// A new script from this URL replaced it.
    Replaced(String),
    /// The firmware boots its next device.
    Exited,
    /// It is still trying after a day.
    Running,
}

/// A machine that runs a script.
struct Machine<'a> {
    /// Time since the script began, in seconds.
    now: u64,
    /// Time that a failed fetch takes, in seconds.
    timeout: u64,
    /// True if the URL can be fetched at the time.
    serves: &'a dyn Fn(u64, &str) -> bool,
    variables: HashMap<String, String>,
}

impl<'a> Machine<'a> {
    fn new(timeout: u64, serves: &'a dyn Fn(u64, &str) -> bool) -> Self {
        Self { now: 0, timeout, serves, variables: HashMap::new() }
    }

    /// Runs `script`. Returns its end and the time.
    fn run(mut self, script: &str) -> (End, u64) {
        let lines: Vec<&str> = script.lines().collect();
        let mut next = 0;
        while self.now < 24 * HOUR {
            let Some(line) = lines.get(next) else { return (End::Exited, self.now) };
            next += 1;
            // `||` and `&&` decide if the next command runs; a skipped one keeps the status.
            let (mut status, mut runs) = (true, true);
            let words: Vec<String> = line.split(' ').map(|word| self.expand(word)).collect();
            for command in words.split_inclusive(|word| word == "||" || word == "&&") {
                let (word, command) = match command.split_last() {
                    Some((word, command)) if word == "||" || word == "&&" => (&**word, command),
                    _ => ("", command),
                };
                let command: Vec<&str> = command.iter().map(String::as_str).collect();
                match command[..] {
                    _ if !runs => {}
                    ["goto", label] => {
                        next = lines.iter().position(|line| *line == format!(":{label}")).unwrap();
                        status = true;
                        break;
                    }
                    ["boot"] => return (End::Booted, self.now),
                    ["exit", ..] => return (End::Exited, self.now),
                    ["chain", "--replace", url] if self.fetches(url) => {
                        return (End::Replaced(url.to_owned()), self.now);
                    }
                    ref command => status = self.simple(command),
                }
                runs = match word {
                    "||" => !status,
                    _ => status,
                };
            }
            // A line ends with `||` if the script goes on after a failure.
            if !status && !line.ends_with("||") {
                return (End::Exited, self.now);
            }
        }
        (End::Running, self.now)
    }

    /// Runs a command that neither jumps nor ends the script. Returns its status.
    fn simple(&mut self, command: &[&str]) -> bool {
        match command {
            [] | ["#!ipxe" | "imgfree" | "echo", ..] => true,
            [label] if label.starts_with(':') => true,
            ["set", name, value] => {
                let name = name.split(':').next().unwrap();
                self.variables.insert(name.to_owned(), (*value).to_owned());
                true
            }
            ["inc", name] => {
                let value = self.variables.get_mut(*name).unwrap();
                *value = (value.parse::<u32>().unwrap() + 1).to_string();
                true
            }
            ["iseq", one, other] => one == other,
            ["sleep", seconds] => {
                self.now += seconds.parse::<u64>().unwrap();
                true
            }
            ["kernel" | "initrd" | "imgfetch", "--name", _, url, ..] => self.fetches(url),
            ["chain", "--replace", _] => false,
            other => panic!("{other:?}"),
        }
    }

    fn fetches(&mut self, url: &str) -> bool {
        let served = (self.serves)(self.now, url);
        self.now += if served { 0 } else { self.timeout };
        served
    }

    fn expand(&self, word: &str) -> String {
        let value = |text: String, (name, value): (&String, &String)| {
            text.replace(&format!("${{{name}}}"), value)
        };
        self.variables.iter().fold(word.to_owned(), value)
    }
}

fn run(timeout: u64, serves: &dyn Fn(u64, &str) -> bool) -> (End, u64) {
    let line = arguments(&[]);
    Machine::new(timeout, serves).run(&load(&environment(&line)).unwrap())
}

fn new_script() -> End {
    End::Replaced(format!("{SITE}/02-00-00-00-00-01/auto.ipxe"))
}

#[test]
fn the_kernel_is_started_when_the_server_is_back() {
    assert_eq!(run(0, &|_, _| true), (End::Booted, 0));
    assert_eq!(run(1, &|now, _| now >= 120).0, End::Booted);
    let initramfs_later = |now: u64, url: &str| !url.contains("initramfs") || now >= 60;
    assert_eq!(run(0, &initramfs_later).0, End::Booted);
}

#[test]
fn a_new_script_is_fetched_after_three_minutes_and_before_the_tokens_expire() {
    let no_files = |_: u64, url: &str| !url.contains("/v1/boot/");
    let lifetime = runtime::boot_token::LIFETIME.as_secs();
    for timeout in [0, 5, 60] {
        let (end, at) = run(timeout, &no_files);
        assert_eq!(end, new_script());
        assert!((180..lifetime - 120).contains(&at), "{at} s with a timeout of {timeout} s");
    }
}

#[test]
fn a_script_does_not_give_up_while_the_server_is_away_and_then_uses_no_old_token() {
    assert_eq!(run(30, &|_, _| false).0, End::Running);
    let (end, at) = run(30, &|now, _| now >= 5 * HOUR);
    assert_eq!(end, new_script());
    assert!((5 * HOUR..5 * HOUR + 120).contains(&at), "{at}");
    // The script is there again shortly after the server.
    let starts =
        |now: u64, url: &str| now >= HOUR + 30 || (now >= HOUR && url.ends_with("/healthz"));
    assert_eq!(run(1, &starts).0, new_script());
}

#[test]
fn a_script_ends_if_the_server_refuses_a_new_one_three_times() {
    let (end, at) = run(0, &|_, url| url.ends_with("/healthz"));
    assert_eq!(end, End::Exited);
    assert!(at < 300, "{at}");
}
