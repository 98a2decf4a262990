//! Development components: an interpreter whose file ends with the program that it runs, in a custom section.
//!
//! The interpreter is compiled once for all programs, so that a changed program serves immediately. The guest reads its
//! program by the import `hatchery:development/program`.

use bytes::Bytes;
use wasmparser::BinaryReader;

/// Name of the custom section.
const SECTION: &str = "hatchery:program";

/// Id of custom sections.
const CUSTOM: u8 = 0;

/// Bytes before the first section.
const PREAMBLE: usize = 8;

/// The parts of a development component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DevelopmentFile {
    /// The component without its program.
    pub(crate) interpreter: Bytes,
    pub(crate) program: Bytes,
}

impl DevelopmentFile {
    /// Splits a file. `None` if its last section is not a program.
    pub(crate) fn split(file: &Bytes) -> Option<Self> {
        let mut start = PREAMBLE;
        loop {
            let mut reader = BinaryReader::new(file.get(start..)?, start);
            let id = reader.read_u8().ok()?;
            let size = usize::try_from(reader.read_var_u32().ok()?).ok()?;
            let content = reader.original_position();
            let end = content.checked_add(size)?;
            if end < file.len() {
                start = end;
                continue;
            }
            let mut reader = BinaryReader::new(file.get(content..end)?, content);
            if id != CUSTOM || reader.read_string().ok()? != SECTION {
                return None;
            }
            let program = file.slice(reader.original_position()..end);
            return Some(Self { interpreter: file.slice(..start), program });
        }
    }
}

/// Returns the file of a development component: the bytes of an interpreter, followed by a program.
pub fn join(interpreter: &[u8], program: &[u8]) -> Vec<u8> {
    let size = 1 + SECTION.len() + program.len();
    let mut file = Vec::with_capacity(interpreter.len() + 1 + 5 + size);
    file.extend_from_slice(interpreter);
    file.push(CUSTOM);
    write_leb128(&mut file, size);
    write_leb128(&mut file, SECTION.len());
    file.extend_from_slice(SECTION.as_bytes());
    file.extend_from_slice(program);
    file
}

fn write_leb128(bytes: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push((value & 0x7f) as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joined_file_is_split_into_the_same_parts() {
        let interpreter = wat::parse_str("(component (core module (memory 2)) (core module))").unwrap();
        for program in [Vec::new(), b"1 + 1".to_vec(), vec![7; 300_000]] {
            let file = Bytes::from(join(&interpreter, &program));
            let split = DevelopmentFile::split(&file).unwrap();
            assert_eq!((&split.interpreter[..], &split.program[..]), (&interpreter[..], &program[..]));
        }
    }

    #[test]
    fn only_a_complete_section_at_the_end_is_a_program() {
        let interpreter = wat::parse_str("(component (core module))").unwrap();
        let file = join(&interpreter, b"1 + 1");
        let with_more = [&file[..], &[0, 2, 1, b'x']].concat();
        let cut = file[..file.len() - 1].to_vec();
        for other in [interpreter, with_more, cut, b"\0asm".to_vec(), Vec::new()] {
            assert_eq!(DevelopmentFile::split(&other.into()), None);
        }
    }
}
