package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
)

const dotProduct = "VDPBF16PS"

// dot adds the products of pairs of bf16 numbers to a sum. Neither avo nor Go's assembler
// knows the instruction: encodeDots puts its bytes in the text.
func (g *generator) dot(a, b, sum vec) {
	g.Instruction(&ir.Instruction{
		Opcode: dotProduct, Operands: []operand.Op{a, b, sum},
		Inputs: []operand.Op{a, b, sum}, Outputs: []operand.Op{sum},
		ISA: []string{"AVX512F", "AVX512_BF16"},
	})
}

var dotLine = regexp.MustCompile(dotProduct + ` +Z(\d+), Z(\d+), Z(\d+)`)

// encodeDots replaces the instruction by its bytes, with itself as their comment.
func encodeDots(text []byte) []byte {
	return dotLine.ReplaceAllFunc(text, func(line []byte) []byte {
		var z [3]byte
		for i, number := range dotLine.FindSubmatch(line)[1:] {
			n, err := strconv.ParseUint(string(number), 10, 5)
			if err != nil {
				panic(err)
			}
			z[i] = byte(n)
		}
		text := []string{}
		for _, b := range encodeDot(z[0], z[1], z[2]) {
			text = append(text, fmt.Sprintf("BYTE $%#02x", b))
		}
		return fmt.Appendf(nil, "%s // %s Z%d, Z%d, Z%d", strings.Join(text, "; "), dotProduct, z[0], z[1], z[2])
	})
}

// encodeDot is EVEX.512.F3.0F38.W0 52 /r with registers only, in Go's order. EVEX holds
// registers' upper bits, and all of the middle one, inverted.
func encodeDot(rm, middle, sum byte) [6]byte {
	bit := func(of, n byte) byte { return of >> n & 1 }
	return [6]byte{
		0x62,
		0xf2 ^ (bit(sum, 3)<<7 | bit(rm, 4)<<6 | bit(rm, 3)<<5 | bit(sum, 4)<<4),
		0x7e ^ (middle & 15 << 3),
		0x48 ^ bit(middle, 4)<<3,
		0x52,
		0xc0 | sum&7<<3 | rm&7,
	}
}
