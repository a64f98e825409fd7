//! The values of all atoms for one ref.

use bstr::ByteSlice;

/// A row of values, made to be filled again and again.
#[derive(Debug, Default)]
pub(super) struct Row {
    text: Vec<u8>,
    cells: Vec<Cell>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    start: usize,
    end: usize,
    number: Option<u64>,
}

impl Row {
    /// Empties the row, which has so many values from now on.
    pub(super) fn clear(&mut self, len: usize) {
        self.text.clear();
        self.cells.clear();
        self.cells.resize(len, Cell::default());
    }

    /// Returns what to append the next value to, and where it begins.
    pub(super) fn begin(&mut self) -> (&mut Vec<u8>, usize) {
        let start = self.text.len();
        (&mut self.text, start)
    }

    /// Takes what was appended since `start` as the value of an atom. It ends at a zero byte, unless
    /// it is `raw`.
    pub(super) fn end(&mut self, index: usize, start: usize, raw: bool) {
        let appended = self.text.get(start..).unwrap_or_default();
        if !raw && let Some(zero) = appended.find_byte(0) {
            self.text.truncate(start + zero);
        }
        let end = self.text.len();
        if let Some(cell) = self.cells.get_mut(index) {
            (cell.start, cell.end) = (start, end);
        }
    }

    /// Says by which number an atom is sorted, if it has one.
    pub(super) fn set_number(&mut self, index: usize, number: Option<u64>) {
        if let Some(cell) = self.cells.get_mut(index) {
            cell.number = number;
        }
    }

    /// Returns the value of an atom.
    pub(super) fn value(&self, index: usize) -> &[u8] {
        let cell = self.cells.get(index).copied().unwrap_or_default();
        self.text.get(cell.start..cell.end).unwrap_or_default()
    }

    /// Returns the number by which an atom is sorted.
    pub(super) fn number(&self, index: usize) -> Option<u64> {
        self.cells.get(index)?.number
    }
}
