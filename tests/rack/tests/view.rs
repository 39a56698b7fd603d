//! The live view of `cargo rack`: its lines in any size, consoles without control sequences, the terminal, and the picture.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::{Command, Stdio};
use std::time::Duration;

use console::measure_text_width;
use rack::view::console::lines as console_lines;
use rack::view::recording::Recording;
use rack::view::screen::{Line, Style, lines};
use rack::view::state::{ActionProgress, LogLine, MachineState, RackState};
use rack::view::terminal::Terminal;

/// Set if the test of the terminal runs on one.
const ON_TERMINAL: &str = "VIEW_ON_TERMINAL";

/// Returns a rack `seconds` after the start whose two machines write an image, of which `percent` are done.
fn rack(seconds: u64, percent: u64) -> RackState {
    let machine = |number: u64| MachineState {
        name: format!("m{number}"),
        description: format!("BIOS  52:54:00:00:01:0{number}  198.51.100.1{number}"),
        state: "provisioning".into(),
        boots: 1,
        boot_steps: vec!["DHCP".into(), "loader".into(), "script".into()],
        action: Some(ActionProgress {
            name: "write-image".into(),
            phase: "writing".into(),
            bytes: percent << 20,
            total_bytes: 100 << 20,
        }),
        console: (1..=8).map(|line| format!("m{number} prints <{line}> & waits")).collect(),
        ..Default::default()
    };
    let log = |at| LogLine { at: Duration::from_secs(at), text: format!("event {at}") };
    RackState {
        elapsed: Duration::from_secs(seconds),
        machines: vec![machine(1), machine(2)],
        log: (1..=20).map(log).collect(),
    }
}

fn text(line: &Line) -> String {
    line.iter().map(|span| span.text.as_str()).collect()
}

fn texts(state: &RackState, width: usize, height: usize) -> Vec<String> {
    lines(state, width, height).iter().map(text).collect()
}

#[test]
fn a_screen_shows_machines_boots_progress_consoles_and_the_last_events() {
    let screen = texts(&rack(83, 50), 100, 30);
    assert!(screen[0].starts_with("Tinwright") && screen[0].ends_with("1:23"), "{screen:?}");
    for part in [
        "m1  BIOS  52:54:00:00:01:01  198.51.100.11",
        "  boot    DHCP › loader › script",
        "━━━━━━━━━━━━────────────  50 %  50 of 100 MiB",
        "  │ m2 prints <8> & waits",
        "   20 s  event 20",
    ] {
        assert!(screen.iter().any(|line| line.contains(part)), "{part}: {screen:#?}");
    }
    assert!(screen.iter().any(|line| line.starts_with("m1") && line.ends_with("provisioning")));
}

#[test]
fn lines_fit_into_a_terminal_of_any_size() {
    let state = rack(83, 50);
    for width in 0..140 {
        for height in [0, 1, 5, 13, 24, 60] {
            let screen = texts(&state, width, height);
            assert_eq!(screen.len(), height);
            let widest = screen.iter().map(|line| measure_text_width(line)).max();
            assert!(widest.unwrap_or(0) <= width, "{width}: {screen:#?}");
        }
    }
    let narrow = texts(&state, 30, 24);
    assert!(narrow.iter().any(|line| line.ends_with('…')), "{narrow:#?}");
}

#[test]
fn a_small_terminal_has_room_for_four_events() {
    let screen = texts(&rack(83, 50), 80, 24);
    assert!(screen.iter().any(|line| line.contains("event 17")), "{screen:#?}");
}

#[test]
fn states_have_colours_and_their_reasons() {
    let mut state = rack(83, 50);
    state.machines[0].state = "active".into();
    state.machines[1].state = "failed".into();
    state.machines[1].reason = "the disk is too small".into();
    let spans: Vec<_> = lines(&state, 100, 30).into_iter().flatten().collect();
    let style = |text: &str| spans.iter().find(|span| span.text == text).map(|span| span.style);
    assert_eq!(style("active"), Some(Style::Good));
    assert_eq!(style("failed: the disk is too small"), Some(Style::Bad));
}

#[test]
fn consoles_have_no_control_sequences() {
    let bytes = b"first\r\n\x1b[2J\x1b[1;1Hfirmware\x1b[2;1Hloads\r\n  1 %\r 50 %\r100 %\r\n\x1b[0;37;40m\n\x07bell\ttab\n\xffend";
    let expected = ["first", "firmware", "loads", "100 %", "bell tab", "\u{fffd}end"];
    assert_eq!(console_lines(bytes, 8), expected);
    assert_eq!(console_lines(bytes, 2), expected[4..]);
}

/// Runs the test `name` on a terminal, with these environment variables. Returns what it wrote.
fn on_terminal(name: &str, variables: &[(&str, &str)]) -> String {
    let program = std::env::current_exe().unwrap();
    let line = format!("{} --exact {name} --nocapture", program.display());
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).stdin(Stdio::null());
    script.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("CLICOLOR");
    let output = script.env(ON_TERMINAL, "1").envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn a_panic_leaves_the_terminal_as_it_was() {
    if std::env::var_os(ON_TERMINAL).is_some() {
        let terminal = Terminal::open();
        let draw = |second| terminal.iter().for_each(|it| it.draw(&rack(second, 50)));
        draw(725);
        std::thread::spawn(|| panic!("on purpose")).join().unwrap_err();
        draw(726);
        return;
    }
    let name = "a_panic_leaves_the_terminal_as_it_was";
    let text = on_terminal(name, &[]);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part:?} in {text:?}"));
    let order =
        ["\x1b[?1049h", "\x1b[?25l", "12:05", "\x1b[?25h", "\x1b[?1049l", "on purpose"].map(at);
    assert!(order.is_sorted(), "{order:?}: {text:?}");
    assert!(!text.contains("12:06"), "nothing is drawn afterwards: {text:?}");
    assert!(text.contains("\x1b[36m"), "colours: {text:?}");
    let plain = on_terminal(name, &[("NO_COLOR", "1")]);
    assert!(plain.contains("12:05") && !plain.contains("\x1b[36m"), "no colours: {plain:?}");
    let dumb = on_terminal(name, &[("TERM", "dumb")]);
    assert!(!dumb.contains("\x1b[?1049h"), "no view: {dumb:?}");
}

#[test]
fn the_percentage_is_within_the_whole() {
    let percent =
        |bytes, total_bytes| ActionProgress { bytes, total_bytes, ..Default::default() }.percent();
    assert_eq!(percent(1, 0), None);
    assert_eq!(percent(u64::MAX - 1, u64::MAX), Some(99));
    assert_eq!(percent(3, 2), Some(100));
}

#[test]
fn a_recording_of_a_long_run_is_a_small_picture_that_ends_with_the_last_frame() {
    let mut recording = Recording::default();
    for second in 0..900 {
        let mut state = rack(second, second / 9);
        // The other one's console never stays the same.
        state.machines[0]
            .console
            .iter_mut()
            .for_each(|line| *line = line.repeat(4) + &second.to_string());
        recording.add(&state);
    }
    let svg = recording.svg();
    assert!(svg.len() < 100_000, "{} bytes", svg.len());
    // The first and the last frame are in it; without animation, only the last one is visible.
    let group = |text: &str| {
        let mut groups = svg.split("\n<g").filter(|group| group.contains(text));
        let group = groups.next().unwrap().lines().next().unwrap().to_owned();
        assert_eq!(groups.count(), 0, "{text} is there once");
        group
    };
    assert!(group(">0:00<").contains("visibility=\"hidden\"><animate"));
    assert!(!group(">14:59<").contains("visibility=\"hidden\""));
    assert!(group(">14:59<").contains("<animate"));
    assert_eq!(group("m2 prints &lt;8&gt; &amp; waits"), ">", "always visible");
}

#[test]
fn frames_that_look_the_same_are_recorded_once() {
    let (mut once, mut often) = (Recording::default(), Recording::default());
    once.add(&rack(1, 0));
    assert!(!once.svg().contains("<animate"), "a still picture");
    once.add(&rack(2, 0));
    (0..9).for_each(|_| often.add(&rack(1, 0)));
    often.add(&rack(2, 0));
    assert_eq!(often.svg(), once.svg());
    assert!(once.svg().contains("<animate"));
}
