//! The unit and the settings in another root directory. tests/rack/tests/package.rs runs the command on a host with systemd.

use super::*;

const PROGRAM: &str = "/usr/local/bin/tinwright";

fn options(config: &str, user: &str) -> Options {
    Options { config: config.into(), user: user.to_owned(), dry_run: false }
}

fn changes(options: &Options, program: &str, root: &Path) -> [Change; 2] {
    let plan = Plan::new(options, Path::new(program), root).unwrap();
    // There is a user of this name, so nobody is created.
    assert_eq!(plan.user, ("root", Change::Unchanged));
    plan.carry_out().unwrap();
    [plan.settings.1, plan.unit.1]
}

#[test]
fn a_repetition_changes_nothing_and_another_path_changes_the_unit() {
    let root = tempfile::tempdir().unwrap();
    let options = options("/etc/tinwright/tinwright.toml", "root");
    assert_eq!(changes(&options, PROGRAM, root.path()), [Change::Created; 2]);
    let (settings, unit) =
        (root.path().join("etc/tinwright/tinwright.toml"), root.path().join(UNIT_FILE));
    assert_eq!(fs::read_to_string(&settings).unwrap(), SETTINGS);
    fs::write(&settings, "log = \"debug\"\n").unwrap();
    assert_eq!(changes(&options, PROGRAM, root.path()), [Change::Unchanged; 2]);
    let other = changes(&options, "/opt/tinwright", root.path());
    assert_eq!(other, [Change::Unchanged, Change::Changed]);
    assert_eq!(fs::read_to_string(&settings).unwrap(), "log = \"debug\"\n", "settings are kept");
    let text = fs::read_to_string(&unit).unwrap();
    let start = "ExecStart=/opt/tinwright serve --config /etc/tinwright/tinwright.toml";
    assert!(text.lines().any(|line| line == start), "{text}");
}

#[test]
fn the_unit_is_the_one_of_the_documents_with_other_paths_and_user() {
    let packaged = unit(
        Path::new("/usr/bin/tinwright"),
        Path::new("/etc/tinwright/tinwright.toml"),
        "tinwright",
    );
    assert_eq!(packaged.unwrap(), UNIT);
    let text = unit(Path::new(PROGRAM), Path::new("/srv/t.toml"), "someone").unwrap();
    let differing: Vec<_> =
        text.lines().zip(UNIT.lines()).filter(|(a, b)| a != b).map(|(line, _)| line).collect();
    let start = "ExecStart=/usr/local/bin/tinwright serve --config /srv/t.toml";
    assert_eq!(differing, [start, "User=someone"]);
    assert_eq!(text.lines().count(), UNIT.lines().count());
}

#[test]
fn what_a_unit_cannot_express_or_a_service_does_not_see_is_refused() {
    let refused = |program: &str, config: &str, user: &str| {
        unit(Path::new(program), Path::new(config), user).unwrap_err().to_string()
    };
    let hidden = refused("/root/tinwright", "/etc/t.toml", "tinwright");
    assert!(hidden.contains("install /root/tinwright /usr/local/bin"), "{hidden}");
    let path = refused(PROGRAM, "/etc/t %h.toml", "tinwright");
    assert!(path.contains("/etc/t %h.toml: only letters"), "{path}");
    let path = refused(PROGRAM, "/root/t.toml", "tinwright");
    assert!(path.ends_with("below /root: give --config another path than /root/t.toml"), "{path}");
    let user = refused(PROGRAM, "/etc/t.toml", "a\nExecStartPre=b");
    assert!(user.contains("name of a user"), "{user}");
}

#[test]
fn the_unit_of_the_package_is_kept() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(packaged_unit(root.path()), None);
    let file = root.path().join("lib/systemd/system/tinwright.service");
    write(&file, UNIT).unwrap();
    assert_eq!(packaged_unit(root.path()).as_ref(), Some(&file));
    let mut out = Vec::new();
    keep_packaged(&options(DEFAULT_SETTINGS_FILE, DEFAULT_USER), &file, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("unchanged") && text.ends_with("enable --now tinwright\n"), "{text}");
    let other = options(DEFAULT_SETTINGS_FILE, "someone");
    let error = keep_packaged(&other, &file, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.ends_with("`systemctl edit tinwright`"), "{error}");
}

#[test]
fn a_host_without_systemd_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let error = check_host(root.path()).unwrap_err().to_string();
    assert!(error.contains("does not run systemd"), "{error}");
    fs::create_dir_all(root.path().join(SYSTEMD_MARK)).unwrap();
    let checked = check_host(root.path());
    assert_eq!(checked.is_ok(), rustix::process::geteuid().is_root(), "{checked:?}");
}

#[test]
fn the_command_to_type_next_depends_on_the_running_server() {
    let root = tempfile::tempdir().unwrap();
    let options = options(DEFAULT_SETTINGS_FILE, "root");
    let plan = || Plan::new(&options, Path::new(PROGRAM), root.path()).unwrap();
    assert!(plan().next(false).contains("enable --now"));
    assert!(plan().next(true).contains("restart"));
    plan().carry_out().unwrap();
    assert!(plan().next(true).contains("the server runs"));
}

#[test]
fn the_first_settings_are_valid() {
    let settings: toml::Table = toml::from_str(SETTINGS).unwrap();
    assert_eq!(settings.keys().collect::<Vec<_>>(), ["data"]);
    // Each setting that is commented out is one of the complete example, with the same name.
    let example = include_str!("../../../../docs/examples/tinwright.toml");
    let is_setting = |line: &&str| line.starts_with("# ") && line.contains(" = ");
    let names = SETTINGS.lines().filter(is_setting).map(|line| line.split(" = ").next().unwrap());
    let names: Vec<_> = names.map(|name| name.trim_start_matches("# ")).collect();
    assert_eq!(names.len(), 4);
    for name in names {
        let start = format!("{name} = ");
        assert!(example.lines().any(|line| line.starts_with(&start)), "{name}");
    }
}
