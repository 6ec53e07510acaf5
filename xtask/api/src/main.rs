//! Lists the public items of a crate, one on each line, from the JSON that rustdoc wrote: `xtask-api FILE`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(file) = std::env::args_os().nth(1) else {
        eprintln!("xtask-api: give the file that rustdoc wrote");
        return ExitCode::from(2);
    };
    match public_api::Builder::from_rustdoc_json(file)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .omit_blanket_impls(true)
        .build()
    {
        Ok(api) => {
            println!("{api}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask-api: {error}");
            ExitCode::FAILURE
        }
    }
}
