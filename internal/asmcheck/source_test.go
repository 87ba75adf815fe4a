package asmcheck

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// source is what a file of assembly says of a function.
type source struct {
	name     string
	requires []string  // extensions, of avo's comment above it
	vector   []string  // opcodes of its vector instructions, in order
	encoded  []encoded // what is written as bytes
}

// encoded is an instruction that is written as bytes, with its comment.
type encoded struct {
	where string
	code  []byte
	text  string
}

func readSources(t *testing.T, pattern string) (list []source) {
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files, pattern)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		functions, err := parseSource(filepath.Base(file), string(text))
		require.NoError(t, err)
		list = append(list, functions...)
	}
	return list
}

var (
	functionLine = regexp.MustCompile(`^TEXT ·(\w+)\(SB\)`)
	dataLine     = regexp.MustCompile(`^(BYTE|WORD|LONG|QUAD)\s+\$(\w+)$`)
	dataSize     = map[string]int{"BYTE": 1, "WORD": 2, "LONG": 4, "QUAD": 8}
)

// parseSource takes a line of bytes, or several in a row, for one instruction, whose text is
// the comment at its end or the one above it.
func parseSource(file, text string) (list []source, err error) {
	var requires []string
	above := ""
	for i, line := range strings.Split(text, "\n") {
		line, comment, hasComment := strings.Cut(strings.TrimSpace(line), "//")
		line, comment = strings.TrimSpace(line), strings.TrimSpace(comment)
		where := fmt.Sprintf("%s:%d", file, i+1)
		if extensions, ok := strings.CutPrefix(comment, "Requires: "); ok {
			requires = strings.Split(extensions, ", ")
		}
		if line == "" {
			if hasComment {
				above = comment
			}
			continue
		}
		if m := functionLine.FindStringSubmatch(line); m != nil {
			list = append(list, source{name: m[1], requires: requires})
			requires, above = nil, ""
			continue
		}
		if len(list) == 0 {
			continue
		}
		f := &list[len(list)-1]
		switch opcode := strings.Fields(line)[0]; {
		case dataSize[opcode] > 0:
			code, err := parseData(line)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", where, err)
			}
			if comment == "" {
				comment = above
			}
			if comment == "" {
				return nil, fmt.Errorf("%s: bytes without the text of an instruction as their comment", where)
			}
			f.encoded = append(f.encoded, encoded{where, code, comment})
			if opcode := strings.Fields(comment)[0]; isVector(opcode) {
				f.vector = append(f.vector, opcode)
			}
		case isVector(opcode):
			f.vector = append(f.vector, opcode)
		}
		above = ""
	}
	return list, nil
}

func parseData(line string) (code []byte, err error) {
	for statement := range strings.SplitSeq(line, ";") {
		m := dataLine.FindStringSubmatch(strings.TrimSpace(statement))
		if m == nil {
			return nil, fmt.Errorf("found %q, want BYTE, WORD, LONG or QUAD of a number", statement)
		}
		size := dataSize[m[1]]
		value, err := strconv.ParseUint(m[2], 0, 8*size)
		if err != nil {
			return nil, err
		}
		code = append(code, binary.LittleEndian.AppendUint64(nil, value)[:size]...)
	}
	return code, nil
}

// isVector is also true of an instruction on a mask.
func isVector(opcode string) bool { return opcode[0] == 'V' || opcode[0] == 'K' }

var (
	number    = regexp.MustCompile(`\b(0x[0-9a-fA-F]+|[0-9]+)\b`)
	noOffset  = regexp.MustCompile(`(^|[ ,])0\(`)
	instBlank = regexp.MustCompile(`\s+`)
)

// plain writes an instruction's text in one way: numbers in decimal, one blank, no offset 0.
func plain(text string) string {
	text = number.ReplaceAllStringFunc(text, func(digits string) string {
		value, err := strconv.ParseUint(digits, 0, 64)
		if err != nil {
			return digits
		}
		return strconv.FormatUint(value, 10)
	})
	text = instBlank.ReplaceAllString(strings.TrimSpace(text), " ")
	return noOffset.ReplaceAllString(text, "$1(")
}

// check compares the bytes with the comment.
func (e *encoded) check() error {
	found, err := decode(e.code)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", e.where, err)
	case len(found) != 1:
		return fmt.Errorf("%s: % x are %d instructions, want one", e.where, e.code, len(found))
	case plain(found[0].text) != plain(e.text):
		return fmt.Errorf("%s: % x are %s, want %s as in the comment", e.where, e.code, plain(found[0].text), plain(e.text))
	}
	return nil
}

// checkOpcodes compares the vector instructions of the source and of the machine code, which
// shows that each was decoded. The assembler's names may have a suffix.
func (s *source) checkOpcodes(code []instruction) error {
	code = slices.DeleteFunc(slices.Clone(code), func(i instruction) bool { return !isVector(i.op) })
	for i, opcode := range s.vector {
		if i == len(code) || !strings.HasPrefix(opcode, code[i].op) {
			found := "nothing"
			if i < len(code) {
				found = code[i].text
			}
			return fmt.Errorf("%s: vector instruction %d is %s in the source but %s in the machine code", s.name, i, opcode, found)
		}
	}
	if len(code) > len(s.vector) {
		return fmt.Errorf("%s: %d vector instructions in the machine code, want %d as in the source", s.name, len(code), len(s.vector))
	}
	return nil
}
