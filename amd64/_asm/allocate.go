package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/reg"
)

// compile is avo's pass.Compile with two changes: functions without AVX-512 use no more than
// 16 registers of a kind, since the others are encoded by it only, and avo learns that a
// vector instruction clears what it does not write of its output.
var compile = pass.Concat(
	pass.Verify,
	pass.FunctionPass(pass.PruneJumpToFollowingLabel),
	pass.FunctionPass(pass.PruneDanglingLabels),
	pass.FunctionPass(pass.LabelTarget),
	pass.FunctionPass(pass.CFG),
	pass.InstructionPass(pass.ZeroExtend32BitOutputs),
	pass.InstructionPass(clearUpperOutputs),
	pass.FunctionPass(pass.Liveness),
	pass.FunctionPass(allocate),
	pass.FunctionPass(pass.BindRegisters),
	pass.FunctionPass(pass.VerifyAllocation),
	pass.FunctionPass(pass.EnsureBasePointerCalleeSaved),
	pass.Func(pass.IncludeTextFlagHeader),
	pass.FunctionPass(pass.PruneSelfMoves),
	pass.FunctionPass(pass.RequiredISAExtensions),
)

func clearUpperOutputs(i *ir.Instruction) error {
	i.CancellingInputs = i.CancellingInputs || i.Opcode == "VPXORD" && len(i.Operands) == 3 // of a register with itself
	for j, output := range i.Outputs {
		if r, ok := output.(reg.Vec); ok && strings.HasPrefix(i.Opcode, "V") {
			i.Outputs[j] = r.AsZ()
		}
	}
	return nil
}

func allocate(fn *ir.Function) error {
	allocators := map[reg.Kind]*pass.Allocator{}
	registers := 16
	if slices.ContainsFunc(fn.Instructions(), needsAVX512) {
		registers = 32
	}
	for _, i := range fn.Instructions() {
		for _, r := range i.Registers() {
			kind := r.Kind()
			if allocators[kind] == nil {
				a, err := newAllocator(kind, registers)
				if err != nil {
					return err
				}
				allocators[kind] = a
			}
			allocators[kind].Add(r.ID())
		}
	}
	for _, i := range fn.Instructions() {
		for _, r := range i.OutputRegisters() {
			live := i.LiveOut.OfKind(r.Kind())
			live.DiscardRegister(r)
			allocators[r.Kind()].AddInterferenceSet(r, live)
		}
	}
	fn.Allocation = reg.NewEmptyAllocation()
	for kind, a := range allocators {
		found, err := a.Allocate()
		if err != nil {
			return fmt.Errorf("%s, registers of kind %d: %w", fn.Name, kind, err)
		}
		if err := fn.Allocation.Merge(found); err != nil {
			return err
		}
	}
	return nil
}

func needsAVX512(i *ir.Instruction) bool {
	return slices.ContainsFunc(i.ISA, func(set string) bool { return strings.HasPrefix(set, "AVX512") })
}

func newAllocator(kind reg.Kind, n int) (*pass.Allocator, error) {
	var registers, last []reg.Physical
	for _, r := range reg.FamilyOfKind(kind).Registers() {
		if int(r.PhysicalIndex()) < n {
			registers = append(registers, r)
		}
		if r.Info()&reg.BasePointer != 0 {
			last = append(last, r)
		}
	}
	a, err := pass.NewAllocator(registers)
	if err != nil {
		return nil, err
	}
	for _, r := range last {
		a.SetPriority(r.ID(), -1)
	}
	return a, nil
}
