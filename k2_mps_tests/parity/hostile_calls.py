"""The calls of hostile.py, and the wrong arguments.

They are texts because hostile.py needs the text of a call: it puts a wrong argument in the place of
each argument, and its reports are these texts.  Linters do not see them, so test_hostile.py makes
each call and each argument.
"""

# The good calls.  hostile_inputs.py makes the inputs that they name.  The functions that make
# random FSAs and shapes are not here: they make as much as their arguments ask for.
CALLS = """
k2.DenseFsaVec(log_probs, segments, allow_truncate=0)
k2.convert_dense_to_fsa_vec(dense)
dense.to(device)
k2.Fsa(arcs)
k2.Fsa(arcs, labels[:3])
fsas.__getitem__(0)
fsas.__setattr__('scores', scores)
fsas.__setattr__('labels', labels)
fsas.__setattr__('extra', labels)
fsas.__setattr__('tag', tags)
fsas.__delattr__('count')
fsas.to(device)
fsas.requires_grad_(True)
fsas.set_scores_stochastic_(scores)
fsas.convert_attr_to_ragged_('count')
fsas.rename_tensor_attribute_('count', 'other')
fsas.get_filler('count')
fsas.get_tot_scores(True, True)
fsas.get_forward_scores(True, True)
fsas.get_backward_scores(True, True)
fsas.get_arc_post(True, True)
k2.Fsa.from_dict(as_dict)
k2.Fsa.from_fsas([fsa, fsa])
k2.Fsa.from_str('0 1 2 3\\n1 2 -1 0\\n2', num_aux_labels=0)
k2.Fsa.from_openfst('0 1 2 3\\n1 0', num_aux_labels=0)
k2.Fsa.from_str('0 1 2 5 3\\n1 2 -1 -1 0\\n2', aux_label_names=['x'])
k2.OnlineDenseIntersecter(topos, 1, 20.0, 8.0, 30, 1000)
online.decode(dense, [None, k2.DecodeStateInfo()])
k2.Nbest.from_lattice(lattice, 5, True, 0.5)
nbest.intersect(plain)
nbest.top_k(2)
k2.Nbest(nbest.fsa, nbest.shape)
k2.RaggedShape('[[x x] [x]]')
k2.RaggedShape.regular_ragged_shape(2, 3)
shape.__getitem__(0)
shape.compose(k2.RaggedShape('[[x] [x x] [x] []]').to(device))
shape.get_layer(0)
shape.index(0, indexes)
shape.max_size(1)
shape.remove_axis(0)
shape.row_ids(1)
shape.row_splits(1)
shape.tot_size(1)
shape.to(device)
k2.ragged.create_ragged_shape2(splits, None, 3)
k2.ragged.create_ragged_shape2(splits, row_ids, 3)
k2.ragged.index(weights, ragged_indexes)
k2.ragged.index_and_sum(weights, ragged_indexes)
k2.ragged.cat([ragged, ragged], 0)
k2.RaggedTensor([[1, 2], [3]], torch.int32)
k2.RaggedTensor('[[1 2] [3]]', torch.int32)
k2.RaggedTensor(ragged.shape, ragged.values)
k2.RaggedTensor(square)
ragged.__getitem__(0)
ragged.add(two, 2)
ragged.arange(0, 0, 1)
ragged.argmax(0)
ragged.index(indexes, 0)
ragged.index(ragged_indexes)
ragged.logsumexp(0.0)
ragged.max(0)
ragged.min(0)
ragged.normalize(True)
ragged.pad('constant', 0)
deep.remove_axis(0)
ragged.remove_values_eq(1)
ragged.remove_values_leq(1)
ragged.requires_grad_(True)
ragged.sort_(False, True)
ragged.sum(0)
ragged.to(device)
ragged.tot_size(1)
tokens.unique(True, True)
k2.RnntDecodingConfig(6, 2, 3.0, 3, 3)
k2.RnntDecodingStream(topo)
k2.RnntDecodingStreams([stream, stream], config)
streams.advance(context_scores)
ended_streams.format_output([1, 1], False)
k2.SymbolTable.from_str('a 1\\nb 2')
symbols_table.add('c', 3)
symbols_table.get(1)
symbols_table.merge(symbols_table)
symbols_table.__getitem__(1)
k2.add_epsilon_self_loops(fsas)
k2.arc_sort(fsas)
k2.cat([fsas, fsas])
k2.closure(fsa)
k2.compose(sorted_fst, sorted_fsa, True)
k2.compose_arc_maps(indexes, indexes)
k2.connect(fsas)
k2.create_fsa_vec([fsa, fsa])
k2.create_sparse(indexes, indexes, values, (5, 5), 0)
k2.ctc_graph([[1, 2], [3]], False, device)
k2.ctc_loss(graph, dense, 10.0, 0.0, 'sum', True, lengths)
k2.CtcLoss(10.0, 'sum', True)(graph, dense, 0.0, lengths)
k2.ctc_topo(5, False, device)
k2.determinize(fsa, k2.DeterminizeWeightPushingType.kNoWeightPushing)
k2.do_rnnt_pruning(am, lm, ranges)
k2.expand_ragged_attributes(with_ragged, False, ['tag'])
k2.get_aux_labels(best)
k2.get_best_matching_stats(tokens, token_scores, counts, 8, 0, 10, 2)
k2.get_lattice(log_probs, frames, topo, 20.0, 8.0, 30, 1000, 1)
k2.get_rnnt_logprobs(lm, am, symbols, 0, 'regular', boundary)
k2.get_rnnt_logprobs_joint(logits, symbols, 0, 'regular', boundary)
k2.get_rnnt_logprobs_pruned(pruned_logits, symbols, ranges, 0, boundary, 'regular')
k2.get_rnnt_logprobs_smoothed(lm, am, symbols, 0, 0.1, 0.1, boundary, 'regular')
k2.get_rnnt_prune_ranges(px_grad, py_grad, boundary, 2)
k2.get_rnnt_prune_ranges_deprecated(px_grad, py_grad, boundary, 2)
k2.index_add(indexes, values, weights)
k2.index_fsa(fsas, two_indexes)
k2.index_select(weights, indexes, 0.0)
k2.index_select(square, indexes)
k2.intersect(sorted_fsa, sorted_fsa, True)
k2.intersect_dense(graph, dense, 10.0, 1000, 1000, two_indexes, 'a', 'b')
k2.intersect_dense_pruned(topo, dense, 20.0, 8.0, 30, 1000, 'a', 'b', False)
k2.intersect_device(sorted_fsas, sorted_fsas, two_indexes, True)
k2.invert(fsts)
k2.is_rand_equivalent(sorted_fsa, sorted_fsa, True, 10.0, True, 1e-6, 10)
k2.joint_mutual_information_recursion([px, px], [py, py], boundary)
k2.levenshtein_alignment(levenshtein, hypotheses, two_indexes, True)
k2.levenshtein_graph([[1, 2], [3]], -0.5, device)
k2.linear_fsa([[1, 2], [3]], device)
k2.linear_fsa_with_self_loops(fsas)
k2.linear_fst([[1, 2], [3]], [[4, 5], [6]])
k2.linear_fst_with_self_loops(fsts)
k2.mutual_information_recursion(px, py, boundary, True)
k2.MWERLoss(1.0, True, 'sum')(lattice, [[1, 2], [3]], 0.5, 5)
k2.mwer_loss(lattice, [[1, 2], [3]], 0.5, 5, 1.0, True, 'sum')
k2.one_best_decoding(fsas, True)
k2.properties_to_str(1)
k2.prune_on_arc_post(fsas, 0.1, True)
k2.pruned_ranges_to_lattice(ranges.int(), frames.to(device), symbols, pruned_logits)
k2.random_paths(fsas, True, 5)
k2.remove_epsilon(fsas)
k2.remove_epsilon_and_add_self_loops(fsas, True)
k2.remove_epsilon_self_loops(fsas)
k2.replace_fsa(plain, plain[0], 3)
k2.reverse(fsas)
k2.rnnt_loss(logits, symbols, 0, boundary, 'regular', 0.1, 'sum')
k2.rnnt_loss_pruned(pruned_logits, symbols, ranges, 0, boundary, 'regular', 0.1, 'sum', False)
k2.rnnt_loss_simple(lm, am, symbols, 0, boundary, 'regular', 0.1, 'sum', True)
k2.rnnt_loss_smoothed(lm, am, symbols, 0, 0.1, 0.1, boundary, 'regular', 0.1, 'sum', True)
k2.shortest_path(fsas, True)
k2.simple_ragged_index_select(weights, ragged_indexes)
k2.swoosh_l(square, 0.1)
k2.swoosh_l_forward(square)
k2.swoosh_l_forward_and_deriv(square)
k2.swoosh_r(square, 0.1)
k2.swoosh_r_forward(square)
k2.swoosh_r_forward_and_deriv(square)
k2.to_str(fsa)
k2.to_str_simple(fsa)
k2.to_tensor(fsas)
k2.top_sort(fsas)
k2.trivial_graph(5, device)
k2.union(fsas)
""".strip().splitlines()

# Wrong arguments that do not depend on the good one; Python evaluates each when a call uses it.
VALUES = """
None
True
0
1
-1
-2
7
2**12
2**16
2**20
2**31 - 1
2**31
-(2**31)
2**32 + 1
2**63
1.5
-1.5
0.0
1e-30
1e30
float('nan')
float('inf')
-float('inf')
''
'x'
'aux_labels'
'arcs'
['arcs']
'meta'
'cuda:7'
'[[1 2] [3'
'[ [ 1 2 ] [ 99999999999 ] ]'
'0 1 2'
'0 1 x 3\\n1'
'0 2147483647 1 0.5\\n2147483647'
'1 0 -1\\n0'
b'x'
[]
[[]]
[[[]]]
[-1]
[[-1]]
[0]
[[0, -2]]
[[1.5]]
[['a']]
[[1, 2], 3]
[[2**31]]
[None]
(lambda x: x.append(x) or x)([])
()
{}
object()
int
torch.int64
torch.float16
torch.device('meta')
torch.tensor(1)
torch.tensor(1.5, device=device)
torch.zeros(0, device=device)
torch.zeros(0, dtype=torch.int32, device=device)
torch.zeros(0, 3, dtype=torch.int32)
torch.zeros(2, 0, device=device)
torch.zeros(1, 1, 1, 1, device=device)
torch.zeros(3, dtype=torch.bool, device=device)
torch.zeros(3, dtype=torch.complex64, device=device)
torch.zeros(2, 3).to_sparse()
torch.full((3,), -1, dtype=torch.int32, device=device)
torch.full((3,), -2, dtype=torch.int32, device=device)
torch.full((3,), 2**31 - 1, dtype=torch.int32, device=device)
torch.arange(3, dtype=torch.int32, device=device).expand(4, 3)
torch.arange(3, device=device).flip(0).int()
torch.zeros(3, device='meta')
torch.zeros(3, dtype=torch.int32, device='meta')
torch.nn.Linear(2, 2)
k2.RaggedTensor([[1, 2], [3]], device=device)
k2.RaggedTensor([[]], torch.int32, device)
k2.RaggedTensor([[-1, 99]], torch.int32, device)
k2.RaggedTensor([[2**31 - 1], [-2**31]], torch.int32, device)
k2.RaggedTensor([[1.5], []], torch.float64, device)
k2.RaggedTensor([[[1]], []], torch.int32, device)
k2.RaggedTensor([[[[1]]]], torch.int32, device)
k2.RaggedTensor([[1]], torch.int32, other)
k2.RaggedShape('[]')
k2.RaggedShape('[[x] [] [x x]]').to(device)
k2.Fsa.from_str('').to(device)
k2.Fsa.from_str('0 0 1 0.5\\n0 1 -1 0\\n1').to(device)
k2.Fsa.from_str('0 1 1 0.5\\n0 2 -1 0\\n1 0 2 0\\n2').to(device)
k2.Fsa.from_str('0 1 2147483647 0.5\\n1 2 -1 0\\n2').to(device)
k2.Fsa.from_str('0 1 5 0\\n0 1 2 -inf\\n1 2 -1 inf\\n2').to(device)
k2.linear_fsa([[1], [], [2]], device)
k2.linear_fsa([1], other)
k2.linear_fsa([[1]], other)
k2.create_fsa_vec([k2.Fsa.from_str('')]).to(device)
k2.DenseFsaVec(torch.zeros(1, 1, 1, device=device), torch.tensor([[0, 0, 1]], dtype=torch.int32))
k2.DenseFsaVec(torch.zeros(1, 1, 5, device=other), torch.tensor([[0, 0, 1]], dtype=torch.int32))
k2.SymbolTable.from_str('a 1')
""".strip().splitlines()

# Wrong arguments that are made from the good one, `x`.  A form that fails is skipped.
CHANGES = """
x[:0]
x[:-1]
x[0]
x + x
x - 2
x + 10**6
x * float('nan')
-x
x.double()
x.half()
x.long()
x.int()
x.float()
x.bool()
x.unsqueeze(0)
x.unsqueeze(-1)
x.squeeze()
x.reshape(-1)
x.transpose(0, 1)
x.flip(-1)
x.repeat_interleave(2, -1)[..., ::2]
x.expand(3, *x.shape)
x.to(other)
x.to('meta')
x.to_sparse()
x.new_zeros(x.shape[0], 70000)
torch.full_like(x, 2**30)
torch.full_like(x, -float('inf'))
k2.create_fsa_vec([x])
k2.closure(x)
k2.invert(x)
x.clone().requires_grad_(True)
x.remove_axis(0)
x.values
[x]
x * 2
[*x, None]
list(reversed(x))
""".strip().splitlines()
