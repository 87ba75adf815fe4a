package asmcheck

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// instruction is one of a function, decoded.
type instruction struct {
	x86asm.Inst
	at       int // bytes from the function's beginning
	op, text string
	encoding encoding
}

type encoding int

const (
	legacy encoding = iota
	vex
	evex
)

// zeroUpper is decoded here, since x86asm takes what follows for a part of it.
var zeroUpper = []byte{0xc5, 0xf8, 0x77}

// longest is the length of the longest instruction.
const longest = 15

// decode leaves no byte out.
func decode(code []byte) (list []instruction, err error) {
	padded := append(slices.Clone(code), make([]byte, longest)...) // x86asm does not always notice an end
	for at := 0; at < len(code); {
		i := instruction{at: at}
		if bytes.HasPrefix(code[at:], zeroUpper) {
			i.Op, i.Len, i.text = x86asm.VZEROUPPER, len(zeroUpper), "VZEROUPPER"
		} else {
			i.Inst, err = x86asm.Decode(padded[at:], 64)
			if err == nil && at+i.Len > len(code) {
				err = errors.New("cut off")
			}
			if err != nil {
				return nil, fmt.Errorf("byte %d, % x: %w", at, code[at:min(at+longest, len(code))], err)
			}
			i.text = x86asm.GoSyntax(i.Inst, uint64(at), nil)
		}
		i.op = i.Op.String()
		switch code[at] {
		case 0xc4, 0xc5:
			i.encoding = vex
		case 0x62:
			i.encoding = evex
			if table := code[at+1] & 7; table == 0 || table > 3 { // x86asm takes FP16's for others
				return nil, fmt.Errorf("byte %d, % x: an instruction of FP16 or later", at, code[at:at+i.Len])
			}
		}
		list = append(list, i)
		at += i.Len
	}
	return list, nil
}

var wideRegister = regexp.MustCompile(`\b[YZ][0-9]`)

// wide tells whether the instruction has a register of more than 128 bits.
func (i *instruction) wide() bool { return wideRegister.MatchString(i.text) }

// target is where a jump goes, from the function's beginning.
func (i *instruction) target() (at int, ok bool) {
	offset, ok := i.Args[0].(x86asm.Rel)
	return i.at + i.Len + int(offset), ok
}

func (i *instruction) jumps() bool { return i.op[0] == 'J' || strings.HasPrefix(i.op, "LOOP") }

// checkUpper finds a way to RET that leaves the upper halves of registers in use, which
// makes SSE instructions after it slow.
func checkUpper(code []instruction) error {
	index := map[int]int{}
	for n, i := range code {
		index[i.at] = n
	}
	type state struct {
		n    int
		used bool
	}
	seen := map[state]bool{}
	for open := []state{{}}; len(open) > 0; {
		s := open[len(open)-1]
		open = open[:len(open)-1]
		if seen[s] {
			continue
		}
		seen[s] = true
		if s.n == len(code) {
			return fmt.Errorf("the code runs past its end")
		}
		i := &code[s.n]
		used := (s.used || i.wide()) && i.op != "VZEROUPPER"
		next := state{s.n + 1, used}
		switch {
		case i.op == "RET" && used:
			return fmt.Errorf("byte %d: RET without VZEROUPPER after the use of YMM or ZMM registers", i.at)
		case i.op == "RET":
			continue
		case i.jumps():
			at, ok := i.target()
			n, inside := index[at]
			if !ok || !inside {
				return fmt.Errorf("byte %d: %s goes to no instruction of the function", i.at, i.text)
			}
			open = append(open, state{n, used})
			if i.op == "JMP" {
				continue
			}
		}
		open = append(open, next)
	}
	return nil
}

// calls lists where the function's calls go, from its beginning.
func calls(code []instruction) (targets []int, err error) {
	for _, i := range code {
		if i.op != "CALL" {
			continue
		}
		at, ok := i.target()
		if !ok {
			return nil, fmt.Errorf("byte %d: %s, want calls of functions by their names", i.at, i.text)
		}
		targets = append(targets, at)
	}
	slices.Sort(targets)
	return slices.Compact(targets), nil
}
